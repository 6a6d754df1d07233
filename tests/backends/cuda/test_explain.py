"""What ``gemmsim.explain`` says of the CUDA backend, and that saying it imports no CUDA package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gemmsim as gs

NESTED = ":chunked(64, chunked(32, chunked(16, chunked(8, chunked(4, e5m10)))))"


def line(spec: str) -> str:
    (found,) = (x for x in gs.explain(spec).splitlines() if x.startswith("cuda: "))
    return found


@pytest.mark.parametrize(
    "spec", ["e4m3 : e5m10", ":binned(fp32)", ":sequential(e5m10, init=c_first)", ":hw(hopper, wgmma, e4m3)"]
)
def test_a_spec_that_runs(spec):
    assert line(spec).startswith("cuda: yes, ") and "gemmsim[cuda]" in line(spec)


def test_a_spec_that_does_not_run_and_why():
    assert line(NESTED) == f"cuda: no, {reason_of_the_backend()}"


def reason_of_the_backend() -> str:
    from gemmsim.backends import cuda

    reason = cuda.supported(gs.GemmSpec.of(NESTED))
    assert reason is not None and "CPU" not in reason
    return reason


def test_explaining_imports_no_cuda_package():
    code = (
        "import sys, torch, gemmsim as gs\n"
        "before = set(sys.modules)\n"  # PyTorch imports cuda.bindings where it is installed
        "gs.explain('e4m3 : e5m10')\n"
        "loaded = [name for name in set(sys.modules) - before if name.split('.')[0] in ('cuda', 'nvidia', 'cutlass')]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
