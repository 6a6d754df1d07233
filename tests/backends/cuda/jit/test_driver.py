"""Loading and launching through the real cuda-core and cuda-bindings, on a libcuda that records what it is asked.

What PyTorch would tell about devices and streams is put in its place, because a CPU build knows none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from support import ROOT

DRIVER = ROOT / "tests" / "backends" / "cuda" / "host" / "driver.c"

SCRIPT = """
import contextlib, ctypes, types, torch
from gemmsim.backends.cuda import DriverError, KernelSource
from gemmsim.backends.cuda.jit.launch import LoadedKernel

class Args(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("count", ctypes.c_uint64)]

torch.cuda.device = lambda index: contextlib.nullcontext()
torch.cuda.current_device = lambda: 1
torch.cuda.current_stream = lambda index: types.SimpleNamespace(cuda_stream=0x5000 + index)
kernel = LoadedKernel(KernelSource("test", "x", "text", threads=128, shared_bytes=100_000), 1, b"\\x7fELF code")
kernel((7, 2, 3), Args(0x1234, 2**40))
kernel((2**31 - 1, 1, 1), Args(0x1234, 1))
try:
    kernel((666, 1, 1), Args())
except DriverError as error:
    ctypes.CDLL(None).fflush(None)
    print("error", error, flush=True)
"""


@pytest.mark.cuda
def test_the_driver_is_asked_the_right_things_in_the_right_order(tmp_path):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is needed to make a driver")
    command = [compiler, "-shared", "-fPIC", "-w", str(DRIVER), "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    common = "launch 0xabc grid"
    assert done.stdout.splitlines() == [
        "context 0x1001",  # device 1's primary context, the one torch uses
        "load ELF ",
        "kernel gemmsim_kernel of 0x77",
        "attribute 8 = 100000 of 0xabc on 1",  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        "context 0x1001",  # once in each thread
        f"{common} 7 2 3 block 128 1 1 shared 100000 stream 0x5001 record 1234 10000000000 extra 0",
        f"{common} 2147483647 1 1 block 128 1 1 shared 100000 stream 0x5001 record 1234 1 extra 0",
        f"{common} 666 1 1 block 128 1 1 shared 100000 stream 0x5001 record 0 0 extra 0",
        "error The CUDA driver could not launch test<x> with (666, 1, 1) blocks: "
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701).",
    ]
