"""The tests marked ``gpu`` on a stand-in for a GPU: they run, none needs many kernels, and what is timed is compared.

They compare the CPU with itself there. What that shows: the tests themselves are sound, and which kernels they launch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support import ROOT
from support_gpu_kit import BENCHMARKS, environment

#: Kernels that one test may need: on a GPU whose kernels have to be compiled first, at up to seconds each.
MOST = 20


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


def test_gpu_tests_run_none_needs_many_kernels_and_all_that_is_timed_is_compared(tmp_path):
    """One test, because it takes minutes to run all others once."""
    env = environment(record=str(tmp_path / "record"))
    list_them = [sys.executable, "-c", "import gpu_check; print(*gpu_check.gpu_tests())"]
    files = subprocess.run(list_them, env=env, capture_output=True, text=True).stdout.split()
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    uses, names = noted(tmp_path / "record")
    assert len(names) > 2000 and len([where for where in uses if "::" in where]) > 1000
    assert not {where: len(kernels) for where, kernels in uses.items() if len(kernels) > MOST}
    compared = set().union(*uses.values())
    for part, least in (("timings", 60), ("tensor cores", 5)):
        timed = timed_kernels(part, tmp_path / part)
        assert len(timed) > least
        assert not {name for digest, name in timed.items() if digest not in compared}, part
