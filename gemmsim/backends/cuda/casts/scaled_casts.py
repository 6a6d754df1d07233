"""Kernels of family ``scaled_cast``: casts with scales that are given or computed per block (cast/scaled*.h)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from ctypes import c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.lowering.scaled_cast_ids import TIES, GridNumbers

from ...dtypes import DTYPES
from ..jit.launch import launch
from ..jit.source import KernelSource
from .cast import MAX_DIMS

__all__ = ["ScaledLaunch", "affine_cast", "scaled_blocks", "scaled_cast", "scaled_source", "sources"]

_THREADS = 256
#: gemmsim::Spreading.
_ONE, _BY_PACK, _BY_ELEMENT = "ONE", "PACKS", "ELEMENTS"
#: ScaledBlocksKernel<K>::PACKS.
_BLOCK_PACKS = 2
_RULES = {"amax": "BLOCK_AMAX", "e8m0": "BLOCK_POWER", "e4m3": "BLOCK_REAL"}
_Dims = c_int64 * MAX_DIMS


class ScaledLaunch(ctypes.Structure):
    """gemmsim::ScaledLaunch, field by field."""

    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p), ("amax", c_void_p), ("second", c_void_p), ("status", c_void_p),
        ("count", c_uint64),
        ("amax_inner", c_int64), ("amax_period", c_int64), ("second_inner", c_int64), ("second_period", c_int64),
        ("block", c_int64), ("groups", c_int64),
        ("steps", c_float), ("dims", c_int32), ("team", c_int32), ("reserved", c_int32),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims), ("amax_stride", _Dims), ("second_stride", _Dims),
    ]  # fmt: skip


def _grid_literal(grid: GridNumbers) -> str:
    ties = ("EVEN", "AWAY", "TOWARD_ZERO")[TIES.index(grid.ties)]
    return (
        f"{{.integer = {int(grid.integer)}, .ties = gemmsim::ScaledTies::{ties}, .trailing = {grid.trailing}, "
        f".emin = {grid.emin}, .low = {float(grid.low).hex()}f, .high = {float(grid.high).hex()}f}}"
    )


class _Kernel(NamedTuple):
    """The requested gemmsim::ScaledConfig."""

    rule: str
    grid: GridNumbers
    src: torch.dtype
    dst: torch.dtype
    has_amax: bool = False
    has_second: bool = False
    emit_integers: bool = False
    spreading: str = _ONE
    vector: int = 0
    lanes: int = 0

    def work(self) -> int:
        """Return the number of elements of a thread."""
        if self.rule.startswith("BLOCK"):
            return max(1, self.vector * _BLOCK_PACKS)
        return max(1, self.vector) * self.packs() if self.vector else 1

    def packs(self) -> int:
        """Return ScaledKernel<K>::PACKS."""
        return 1 if self.vector and self.spreading == _BY_ELEMENT else 4

    def name(self) -> str:
        g = self.grid
        what = f"integers {g.low:g}..{g.high:g}" if g.integer else f"floats to {g.high:g}/{g.ties}"
        by = {"GIVEN": "amax" if self.has_amax else "no scale", "AFFINE": "range"}.get(self.rule, self.rule.lower())
        second = " and bias" if self.has_second and self.rule == "GIVEN" else ""
        layout = f"blocks of {self.lanes} packs" if self.lanes else "contiguous" if self.vector else "strided"
        layout += {_ONE: "", _BY_PACK: ", a scale for each pack", _BY_ELEMENT: ", for each element"}[self.spreading]
        dtypes = " to ".join(DTYPES[d].label.lower() for d in (self.src, self.dst))
        return f"{what}, {by}{second}, {dtypes}, {layout}{', as integers' if self.emit_integers else ''}"


@lru_cache(maxsize=4096)
def scaled_source(kernel: _Kernel) -> KernelSource:
    """Return the kernel for one rule, value set, pair of dtypes and layout."""
    blocks = kernel.rule.startswith("BLOCK")
    header, body = ("scaled_blocks", "scaled_blocks_body") if blocks else ("scaled", "scaled_body")
    a, b = (DTYPES[d].label for d in (kernel.src, kernel.dst))
    fields = (
        f".src = gemmsim::{a}, .dst = gemmsim::{b}, .rule = gemmsim::ScaledRule::{kernel.rule}, "
        f".grid = {_grid_literal(kernel.grid)}, .has_amax = {int(kernel.has_amax)}, "
        f".has_second = {int(kernel.has_second)}, .emit_integers = {int(kernel.emit_integers)}, "
        f".spreading = gemmsim::Spreading::{kernel.spreading}, "
        f".vector = {kernel.vector}, .lanes = {kernel.lanes}"
    )
    text = (
        f'#include "cast/{header}.h"\n'
        f"constexpr gemmsim::ScaledConfig kConfig{{{fields}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) '
        "gemmsim_kernel(const gemmsim::ScaledLaunch args) {\n"
        f"    gemmsim::{body}<kConfig>(args, threadIdx.x, blockIdx.x);\n"
        "}\n"
    )
    shared = 4 * _THREADS if blocks and not kernel.lanes else 0
    return KernelSource("scaled_cast", kernel.name(), text, _THREADS, shared_bytes=shared, work=kernel.work())


def scaled_cast(
    x: Tensor,
    grid: GridNumbers,
    out: Tensor,
    *,
    amax: Tensor | None = None,
    bias: Tensor | None = None,
    integers: bool = False,
    check: bool = True,
) -> int:
    """``gemmsim.backends.cpu.scaled_cast`` on the tensors' device and torch's current stream, with the same bits.

    With ``check`` the function returns the status, and waits for the GPU if the value set is unsigned and inputs may be
    negative. Without it the status is 0.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    status = _status(out, check and grid.integer and grid.low == 0)
    kernel = _Kernel("GIVEN", grid, x.dtype, out.dtype, amax is not None, bias is not None, integers)
    return _elements(kernel, x, out, amax, bias, status, 0.0)


def affine_cast(x: Tensor, low: Tensor, high: Tensor, num_bits: int, out: Tensor) -> int:
    """``gemmsim.backends.cpu.affine_cast`` on the tensors' device. Raises ``CudaError`` as ``scaled_cast``."""
    half = 2.0 ** (num_bits - 1)
    kernel = _Kernel("AFFINE", GridNumbers(True, -half, half - 1), x.dtype, out.dtype, True, True)
    return _elements(kernel, x, out, low, high, None, 2.0**num_bits - 1)


def scaled_blocks(
    x: Tensor, grid: GridNumbers, size: int, scale: str, amax: Tensor | None, out: Tensor, *, check: bool = True
) -> int:
    """``gemmsim.backends.cpu.scaled_blocks`` on the tensors' device.

    ``amax`` is that of the tensor, where ``scale`` is "e4m3". The kernel reads it, so that nothing waits for the GPU.
    With ``check`` the function returns the status, which waits; else 0. Raises ``CudaError`` as ``scaled_cast``.
    """
    if out.numel() == 0:
        return 0
    status = _status(out, check)
    args = ScaledLaunch(src=x.data_ptr(), dst=out.data_ptr(), count=out.numel(), block=min(size, x.shape[-1]))
    args.status = None if status is None else status.data_ptr()
    second = None if amax is None else amax.to(torch.float32)
    args.amax = None if second is None else second.data_ptr()
    kernel = _Kernel(_RULES[scale], grid, x.dtype, out.dtype, second is not None)
    vector, lanes = _shared(x, out, int(args.block))
    if lanes:
        kernel = kernel._replace(vector=vector, lanes=lanes)
        blocks = -(-out.numel() // (_THREADS * vector * _BLOCK_PACKS))
    else:
        _describe_rows(args, x, out)
        blocks = -(-args.groups // (_THREADS // args.team))
    launch(scaled_source(kernel), out.device, (blocks, 1, 1), args)
    return 0 if status is None else int(status)


def _status(out: Tensor, wanted: bool) -> Tensor | None:
    return torch.zeros((), dtype=torch.int32, device=out.device) if wanted else None


def _shared(x: Tensor, out: Tensor, block: int) -> tuple[int, int]:
    """Return the elements of a pack, and the number of threads that share a block of neighbouring memory.

    The number of threads is 0 if they cannot share it.
    """
    vector = 8 if max(DTYPES[t.dtype].bytes for t in (x, out)) == 2 else 4
    lanes = block // vector
    fits = x.shape[-1] % block == 0 and block % vector == 0 and 1 <= lanes <= 32 and lanes & (lanes - 1) == 0
    contiguous = x.is_contiguous() and out.is_contiguous() and (x.data_ptr() | out.data_ptr()) % 16 == 0
    return (vector, lanes) if fits and contiguous else (vector, 0)


def _describe_rows(args: ScaledLaunch, x: Tensor, out: Tensor) -> None:
    """Fill the dimensions for the kernel of any blocks.

    The dimensions of rows come first, merged where both tensors allow it. The dimension of blocks follows.
    """
    dims = _merged(list(zip(out.shape[:-1], x.stride()[:-1], out.stride()[:-1], strict=True)))
    dims.append((out.shape[-1], x.stride(-1), out.stride(-1)))
    _put_dims(args, dims, ("src_stride", "dst_stride"))
    args.groups = math.prod(out.shape[:-1]) * -(-out.shape[-1] // args.block)
    args.team = min(_THREADS, 1 << (int(args.block) - 1).bit_length())


def _elements(
    kernel: _Kernel,
    x: Tensor,
    out: Tensor,
    amax: Tensor | None,
    second: Tensor | None,
    status: Tensor | None,
    steps: float,
) -> int:
    if out.numel() == 0:
        return 0
    args = ScaledLaunch(src=x.data_ptr(), dst=out.data_ptr(), count=out.numel(), steps=steps)
    args.status = None if status is None else status.data_ptr()
    spread = [None if t is None else t.to(torch.float32) for t in (amax, second)]
    args.amax, args.second = (None if t is None else t.data_ptr() for t in spread)
    plain = x.is_contiguous() and out.is_contiguous() and (x.data_ptr() | out.data_ptr()) % 16 == 0
    runs = [(1, 1) if t is None else _periodic(t, out.shape) for t in spread]
    if plain and None not in runs:
        (args.amax_inner, args.amax_period), (args.second_inner, args.second_period) = runs  # type: ignore[misc]
        kernel = kernel._replace(vector=16 // max(DTYPES[t.dtype].bytes for t in (x, out)))
        kernel = kernel._replace(spreading=_spreading(runs, kernel.vector))  # type: ignore[arg-type]
    else:
        _describe_elements(args, x, out, spread)
    blocks = -(-out.numel() // (_THREADS * kernel.packs() * max(1, kernel.vector)))
    launch(scaled_source(kernel), out.device, (blocks, 1, 1), args)
    return 0 if status is None else int(status)


def _periodic(t: Tensor, shape: torch.Size) -> tuple[int, int] | None:
    """Return (inner, period) if element i of a contiguous ``shape`` uses element i // inner % period of ``t``, else
    None.
    """
    if t.numel() == 1:
        return 1, 1
    if not t.is_contiguous():
        return None
    sizes = [1] * (len(shape) - t.dim()) + list(t.shape)
    wide = [d for d, n in enumerate(sizes) if n != 1]
    if sizes[wide[0] : wide[-1] + 1] != list(shape[wide[0] : wide[-1] + 1]):
        return None
    return math.prod(shape[wide[-1] + 1 :]), t.numel()


def _spreading(runs: Sequence[tuple[int, int]], vector: int) -> str:
    """Return how the packs of a contiguous tensor use scales: one for all, one per pack or one per element."""
    wide = [inner for inner, period in runs if period > 1]
    if not wide:
        return _ONE
    return _BY_PACK if all(inner % vector == 0 for inner in wide) else _BY_ELEMENT


def _describe_elements(args: ScaledLaunch, x: Tensor, out: Tensor, spread: Sequence[Tensor | None]) -> None:
    strides: list[Sequence[int]] = [x.stride(), out.stride()]
    for t in spread:
        strides.append([0] * out.dim() if t is None else t.expand(out.shape).stride())
    dims = _merged(list(zip(out.shape, *strides, strict=True)))
    _put_dims(args, dims, ("src_stride", "dst_stride", "amax_stride", "second_stride"))


def _merged(dims: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return dimensions (size, strides...) in the order of the destination's strides, neighbours merged where
    possible.
    """
    merged: list[tuple[int, ...]] = []
    for dim in sorted((d for d in dims if d[0] != 1), key=lambda d: abs(d[2]), reverse=True):
        last = merged[-1] if merged else None
        if last is not None and last[1:] == tuple(stride * dim[0] for stride in dim[1:]):
            merged[-1] = (last[0] * dim[0], *dim[1:])
        else:
            merged.append(dim)
    return merged


def _put_dims(args: ScaledLaunch, dims: list[tuple[int, ...]], names: Sequence[str]) -> None:
    if len(dims) > MAX_DIMS:
        raise ValueError(f"{len(dims)} dimensions: at most {MAX_DIMS} are supported. Flatten some of them.")
    args.dims = len(dims)
    for k, (size, *strides) in enumerate(dims):
        args.size[k] = size
        for name, stride in zip(names, strides, strict=True):
            getattr(args, name)[k] = stride


_INT8, _UINT4 = GridNumbers(True, -127.0, 127.0), GridNumbers(True, 0.0, 15.0)
_E4M3, _E2M1 = GridNumbers(False, -448.0, 448.0, 3, -6), GridNumbers(False, -6.0, 6.0, 1, 0)
_E3M0 = GridNumbers(False, -16.0, 16.0, 0, -2, "away")


def sources() -> Iterator[KernelSource]:
    """Yield samples: every rule; integers, floats and other ties; 16 bits and float64; both layouts."""
    f32, bf16 = torch.float32, torch.bfloat16
    given = _Kernel("GIVEN", _INT8, f32, f32, True, vector=4)
    listed = [given, given._replace(spreading=_BY_PACK), given._replace(spreading=_BY_ELEMENT)]
    listed += [given._replace(grid=_E4M3), given._replace(grid=_UINT4, has_second=True)]
    listed += [given._replace(grid=_E4M3, has_amax=False), given._replace(emit_integers=True), given._replace(vector=0)]
    listed += [
        given._replace(src=bf16, dst=bf16, vector=8),
        given._replace(src=torch.float64, dst=torch.float64, vector=2),
    ]
    listed += [_Kernel("AFFINE", GridNumbers(True, -128.0, 127.0), f32, f32, True, True, vector=4)]
    listed += [given._replace(rule="BLOCK_AMAX", has_amax=False, lanes=8), given._replace(rule="BLOCK_AMAX", vector=0)]
    listed += [given._replace(rule="BLOCK_POWER", grid=_E4M3, has_amax=False, lanes=8)]
    listed += [given._replace(rule="BLOCK_POWER", grid=_E3M0, has_amax=False, lanes=8)]
    listed += [given._replace(rule="BLOCK_REAL", grid=_E2M1, lanes=4)]
    listed += [given._replace(rule="BLOCK_REAL", grid=_E2M1, src=bf16, dst=bf16, vector=8, lanes=2)]
    yield from map(scaled_source, listed)
