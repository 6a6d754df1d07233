"""Kernels of the CUDA backend on the host: the text that NVRTC compiles, compiled by g++ and called through ctypes."""

from __future__ import annotations

import ctypes
import functools

import pytest
import torch
from torch import Tensor

from gemmsim.backends.cuda.casts import cast as cuda_cast
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.formats import Cast
from gemmsim.lowering.abi_constants import Site
from support.host import host_library
from support.traces import traced

#: Without the C++ library, which kernels do not use: half the time.
_LINK = ("-nodefaultlibs", "-lc", "-lm", "-lgcc", "-Wl,--no-undefined")


@functools.cache
def host_kernel(source: KernelSource) -> ctypes.CDLL:
    """``source`` as a shared library of this machine."""
    return host_library(source.text + "\nGEMMSIM_HOST_ENTRY\n", str(source), link=_LINK)


def run_on_host(source: KernelSource, blocks: tuple[int, int, int], args: ctypes.Structure, *, fibers: bool) -> None:
    """What ``launch`` does on a GPU. ``fibers``: the threads of a block wait for each other."""
    if traced(source, blocks, args):
        return
    library = host_kernel(source)
    assert library.gemmsim_host_args_size() == ctypes.sizeof(args), "the records of C++ and Python differ"
    library.gemmsim_host_run(
        ctypes.byref(args), *blocks, source.threads, ctypes.c_size_t(source.shared_bytes), int(fibers)
    )


def host_quantize(x: Tensor, cast: Cast, out: Tensor, seed: int = 0, site: int = Site.QUANTIZE, start: int = 0) -> None:
    """``gemmsim.backends.cuda.quantize`` with the kernel run on the host."""

    def launch(
        source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure
    ) -> None:
        run_on_host(source, blocks, args, fibers=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_cast, "launch", launch)
        cuda_cast.quantize(x, cast, out, seed, site, start)


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
