"""Kernels of the CUDA backend on the host: the text that NVRTC compiles, compiled by g++ and called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from support import ROOT
from torch import Tensor

from gemmsim.backends.cuda import cast as cuda_cast
from gemmsim.backends.cuda.source import KernelSource
from gemmsim.backends.cuda.toolchain import header_root
from gemmsim.formats import Cast

SHIM = ROOT / "tests" / "backends" / "cuda" / "host" / "shim.h"
#: -ffp-contract=off: a*b + c is two operations unless the code says fma, as in the device options.
FLAGS = ["-std=c++20", "-O1", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-w"]

_built: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def _folder() -> Path:
    _built.append(tempfile.TemporaryDirectory(prefix="gemmsim_host_"))
    return Path(_built[-1].name)


@functools.cache
def host_kernel(source: KernelSource) -> ctypes.CDLL:
    """``source`` as a shared library of this machine."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is needed to run kernels on the host")
    stem = _folder() / hashlib.sha256(source.text.encode()).hexdigest()[:16]
    code, library = stem.with_suffix(".cpp"), stem.with_suffix(".so")
    code.write_text(source.text + "\nGEMMSIM_HOST_ENTRY\n", encoding="utf-8")
    root = header_root()
    include = ["-include", str(SHIM), f"-I{root / 'include'}", f"-I{root}"]
    link = [
        "-nodefaultlibs",
        "-lc",
        "-lm",
        "-lgcc",
        "-Wl,--no-undefined",
    ]  # without the C++ library, which kernels do not use: half the time
    command = [compiler, *FLAGS, *include, str(code), "-o", str(library), *link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{source} does not compile for the host:\n{done.stderr}"
    return ctypes.CDLL(str(library))


def run_on_host(source: KernelSource, blocks: tuple[int, int, int], args: ctypes.Structure, *, fibers: bool) -> None:
    """What ``launch`` does on a GPU. ``fibers``: the threads of a block wait for each other."""
    library = host_kernel(source)
    assert library.gemmsim_host_args_size() == ctypes.sizeof(args), "the records of C++ and Python differ"
    library.gemmsim_host_run(
        ctypes.byref(args), *blocks, source.threads, ctypes.c_size_t(source.shared_bytes), int(fibers)
    )


def host_quantize(x: Tensor, cast: Cast, out: Tensor, seed: int = 0, site: int = cuda_cast.SITE_QUANTIZE) -> None:
    """``gemmsim.backends.cuda.quantize`` with the kernel run on the host."""

    def launch(
        source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure
    ) -> None:
        run_on_host(source, blocks, args, fibers=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_cast, "launch", launch)
        cuda_cast.quantize(x, cast, out, seed, site)


def tiny_kernel(value: int = 1) -> KernelSource:
    """Writes ``value``; compiles in a few hundredths of a second."""
    text = (
        '#include "gemmsim/types.h"\n'
        "struct Args { int* out; };\n"
        f'extern "C" __global__ void gemmsim_kernel(const Args args) {{ *args.out = {value}; }}\n'
    )
    return KernelSource("test", f"tiny {value}", text, threads=1)


def broken_kernel() -> KernelSource:
    """Does not compile."""
    text = 'extern "C" __global__ void gemmsim_kernel() { nonsense; }\n'
    return KernelSource("test", "broken/kernel", text, threads=1)
