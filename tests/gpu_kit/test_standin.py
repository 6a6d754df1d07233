"""The tests marked ``gpu`` on a stand-in for a GPU: they run, none needs many kernels, and what is timed is compared.

They compare the CPU with itself there. What that shows: the tests themselves are sound, and which kernels they launch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from support.gpu_kit import BENCHMARKS, environment

pytestmark = pytest.mark.cuda

#: Kernels that one test may need: on a GPU whose kernels have to be compiled first, at up to seconds each.
MOST = 20
#: Files of such tests for the short run: products of all kinds, layers, casts, block formats, streams and graphs.
A_FEW = ["tests/backends/cublas/test_gpu.py", "tests/backends/cuda/jit/test_launch.py",
         "tests/gpu/test_layers_same_bits.py", "tests/gpu/test_mx.py"]  # fmt: skip


def noted(folder: Path) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Digests of kernels by what launched them, and the names of kernels."""
    uses: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for path in folder.glob("*.jsonl"):
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if "kernel" in line:
                names[line["kernel"]] = f"{line['family']}<{line['name']}>"
            else:
                uses.setdefault(line["where"], set()).add(line["uses"])
    return uses, names


def timed_kernels(part: str, folder: Path) -> dict[str, str]:
    """Everything that a part of the benchmark launches, at its own sizes; nothing is computed."""
    env = environment(answers=False, record=str(folder / "record"), memory_gib=140.0)
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--part", part, "--seconds", "900"]
    done = subprocess.run([*command, "--out", str(folder / "out")], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (folder / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if '"ok": false' in line]
    return noted(folder / "record")[1]


def run_tests(files: list[str], folder: Path) -> dict[str, set[str]]:
    """Digests of kernels by the test that launched them."""
    env = environment(record=str(folder / "record"))
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    uses = noted(folder / "record")[0]
    assert not {where: len(kernels) for where, kernels in uses.items() if len(kernels) > MOST}
    return uses


def test_gpu_tests_run_and_none_needs_many_kernels(tmp_path):
    uses = run_tests(A_FEW, tmp_path)
    assert len([where for where in uses if "::" in where]) > 100


@pytest.mark.long
def test_all_gpu_tests_run_and_all_that_is_timed_is_compared(tmp_path):
    """One test, because it takes minutes to run all others once."""
    list_them = [sys.executable, "-c", "import gpu_check; print(*gpu_check.gpu_tests())"]
    files = subprocess.run(list_them, env=environment(), capture_output=True, text=True).stdout.split()
    assert set(A_FEW) < set(files)
    uses = run_tests(files, tmp_path)
    compared = set().union(*uses.values())
    assert len(compared) > 2000 and len([where for where in uses if "::" in where]) > 1000
    for part, least in (("timings", 60), ("tensor cores", 5)):
        timed = timed_kernels(part, tmp_path / part)
        assert len(timed) > least
        assert not {name for digest, name in timed.items() if digest not in compared}, part
