"""Kernels with CuTe's templates on the host: g++ with NVIDIA's headers, and those of nvidia-cuda-crt, which only g++ needs."""

from __future__ import annotations

import ctypes
import functools
import importlib
import shutil
import subprocess
import sys
from ctypes import c_int, c_uint64, c_void_p
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from gemmsim.backends.cuda.jit.toolchain import nvidia_folders, toolchain
from support import ROOT, bits
from support.host import host_library
from support.traces import traced

_CRT = "include/crt/host_defines.h"


@functools.cache
def cute_kernels() -> ModuleType:
    """``benchmarks/cute_kernels.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
        return importlib.import_module("cute_kernels")


def include_options() -> tuple[str, ...]:
    """Where g++ finds the headers that CuTe includes; skips where a package is missing."""
    crt = next((folder for folder in nvidia_folders() if (folder / _CRT).is_file()), None)
    if crt is None:
        pytest.skip("nvidia-cuda-crt is needed to compile CuTe with g++: pip install 'gemmsim[test]'")
    folders = dict.fromkeys([*toolchain().include_dirs, str(crt / "include")])
    return tuple(f"-I{folder}" for folder in folders)


class AtomArgs(ctypes.Structure):
    """AtomArgs of ``cute_kernels``, field by field."""

    _fields_ = [
        ("a0", c_void_p), ("a1", c_void_p), ("b0", c_void_p), ("b1", c_void_p), ("c", c_void_p),
        ("m", c_int), ("n", c_int), ("k", c_int), ("unused", c_int), ("seed", c_uint64),
    ]  # fmt: skip


#: Of one call of all atoms: what each test looks at a part of.
_products: dict[tuple[object, ...], Tensor] = {}


def run_atoms(operands: list[tuple[Tensor, Tensor]], seed: int) -> Tensor:
    """The product of each atom of ``cute_kernels.ATOMS``, (atoms, M, N) float32.

    ``operands``: of each kind, float32 a (M, K) and b (K, N).
    """
    made = cute_kernels()
    (a0, b0), (a1, b1) = ((a.contiguous(), b.T.contiguous()) for a, b in operands)
    (m, k), n = a0.shape, b0.shape[0]
    out = torch.full((len(made.ATOMS), m, n), torch.nan)
    pointers = {"a0": a0.data_ptr(), "a1": a1.data_ptr(), "b0": b0.data_ptr(), "b1": b1.data_ptr()}
    args = AtomArgs(m=m, n=n, k=k, seed=seed, c=out.data_ptr(), **pointers)
    source, blocks = made.atoms_source(), (-(-m // made.SIDE), -(-n // made.SIDE), len(made.ATOMS))
    if traced(source, blocks, args):
        return out
    key = (seed, *(bits(x).numpy().tobytes() for x in (a0, b0, a1, b1)))
    if key not in _products:
        library = host_library(source.text + "\nGEMMSIM_HOST_ENTRY\n", str(source), link=include_options())
        assert library.gemmsim_host_args_size() == ctypes.sizeof(args), "the records of C++ and Python differ"
        shared = ctypes.c_size_t(source.shared_bytes)
        library.gemmsim_host_run(ctypes.byref(args), *blocks, source.threads, shared, ctypes.c_int(1))
        _products[key] = out
    return _products[key]


def run_program(folder: Path) -> str:
    """What ``examples/cute/main.cu`` prints, compiled for the host; fails where it does not end well."""
    compiler, path = shutil.which("g++"), folder / "gemm"
    if compiler is None:
        pytest.skip("g++ is needed to run the example on the host")
    flags = ("-std=c++20", "-O1", "-march=native", "-ffp-contract=off", "-pthread", "-w", "-x", "c++")
    for command in ([compiler, *flags, *include_options(), str(cute_kernels().PROGRAM), "-o", str(path)], [str(path)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[:6000] + done.stdout
    return done.stdout
