"""Kernels of family ``cast``: element-wise rounding of float tensors (cutlass_kernels/cast/cast.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import Cast, FloatFormat, Rounding, RoundingMode, parse_cast
from gemmsim.lowering.abi_constants import CastFlag, Site
from gemmsim.lowering.casts import cast_numbers

from ...conversions import Conversions
from ...dtypes import DTYPES
from ..jit.launch import launch
from ..jit.source import KernelSource, cast_literal

__all__ = [
    "CONVERSIONS",
    "MAX_DIMS",
    "CastArgs",
    "cast_args",
    "cast_blocks",
    "cast_into",
    "cast_operand",
    "cast_source",
    "copy_rounded",
    "needs_exact",
    "quantize",
    "sources",
]

MAX_DIMS = 16
_THREADS = 256
#: Largest number of draws of one Philox block. Packs of contiguous tensors begin where blocks begin.
_DRAWS = 8

_Dims = c_int64 * MAX_DIMS


class CastArgs(ctypes.Structure):
    """gemmsim::CastArgs, field by field."""

    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p), ("count", c_uint64), ("seed", c_uint64), ("start", c_uint64),
        ("site", c_int32), ("dims", c_int32),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims), ("index_stride", _Dims),
    ]  # fmt: skip


def _vector(cast: Cast, src: torch.dtype, dst: torch.dtype) -> int:
    """Return the elements that a thread reads at once: 16 bytes of the wider type.

    For a stochastic cast it is the number of elements that one call of the generator serves.
    """
    if cast.rounding.is_stochastic:
        return 8
    return 16 // max(DTYPES[src].bytes, DTYPES[dst].bytes)


def _packs(cast: Cast, vector: int, narrow: bool) -> int:
    """Return CastKernel<K>::PACKS, which tests compare. ``narrow``: both tensors have 16 bits."""
    if vector == 0:
        return 4
    long = cast.rounding.is_stochastic and not (narrow and cast.rounding.bits <= 16)
    return 1 if long or needs_exact(cast) else 4


def _is_narrow(src: torch.dtype, dst: torch.dtype) -> bool:
    return DTYPES[src].bytes == DTYPES[dst].bytes == 2


def needs_exact(cast: Cast) -> bool:
    """gemmsim::element_needs_exact: whether only 128-bit integers can compute this cast."""
    one, mode = cast_numbers(cast), cast.rounding.mode
    bits = one.rbits + (mode is RoundingMode.SRB)
    lowest = one.emin - one.p + 1
    if not 1 <= one.p <= 53 or one.emax > 1023 or bits > 32:
        return True
    if one.has(CastFlag.SUPERNORMAL):
        return lowest < -1022
    if one.has(CastFlag.FIRST_IS_ZERO):
        return mode is RoundingMode.SRC or lowest - bits < -1022 or (bits > 0 and one.p + bits > 53)
    if one.p == 1 and one.has(CastFlag.CODE_PARITY) and not one.has(CastFlag.NO_CARRY):
        return one.emin < -1023
    return one.emin < -1022 or lowest + 51 >= 1023


@lru_cache(maxsize=4096)
def cast_source(cast: Cast, src: torch.dtype, dst: torch.dtype, contiguous: bool = True) -> KernelSource:
    """Return the kernel that rounds ``src`` tensors to ``cast`` and stores ``dst``.

    ``contiguous`` selects the fast kernel for contiguous tensors aligned to 16 bytes, instead of the one for any
    strides.

    Raises:
        UnsupportedSpec: if the format's values do not fit float64.
    """
    fmt = cast.format
    if isinstance(fmt, FloatFormat) and not fmt.fits_float64:
        raise UnsupportedSpec(
            f"The CUDA backend cannot round to {cast}: its values do not fit float64. gemmsim.reference can."
        )
    a, b = DTYPES[src].label, DTYPES[dst].label
    vector = _vector(cast, src, dst) if contiguous else 0
    fields = f".src = gemmsim::{a}, .dst = gemmsim::{b}, .cast = {cast_literal(cast_numbers(cast))}, .vector = {vector}"
    text = (
        '#include "cast/cast.h"\n'
        f"constexpr gemmsim::CastConfig kConfig{{{fields}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) gemmsim_kernel(const gemmsim::CastArgs args) {{\n'
        "    gemmsim::cast_body<kConfig>(args, threadIdx.x, blockIdx.x);\n"
        "}\n"
    )
    layout = "contiguous" if contiguous else "strided"
    name = f"{cast}, {a.lower()} to {b.lower()}, {layout}"
    # The strided kernel rounds one element per pass of a loop, which has nearly all of the kernel's instructions.
    return KernelSource("cast", name, text, _THREADS, work=max(1, vector * _packs(cast, vector, _is_narrow(src, dst))))


def cast_blocks(cast: Cast, src: torch.dtype, dst: torch.dtype, contiguous: bool, count: int) -> int:
    """Return the number of blocks with which the kernel of ``cast_source`` covers ``count`` elements."""
    vector = _vector(cast, src, dst) if contiguous else 0
    return -(-count // (_THREADS * _packs(cast, vector, _is_narrow(src, dst)) * max(1, vector)))


def cast_args(src: int, dst: int, count: int, seed: int, site: int) -> CastArgs:
    """Return the arguments for contiguous tensors at the addresses ``src`` and ``dst``."""
    return CastArgs(src=src, dst=dst, count=count, seed=seed, site=site)


@dataclass
class _Dim:
    size: int
    src: int
    dst: int
    index: int


def merged_dims(shape: Sequence[int], src: Sequence[int], dst: Sequence[int]) -> list[_Dim]:
    """Return dimensions in the order of the destination's strides, with neighbours merged where both tensors allow it.

    ``index`` stores what a step along a dimension adds to the row-major index, so that the order is free.
    """
    index, dims = 1, []
    for n, s, d in zip(reversed(shape), reversed(src), reversed(dst), strict=True):
        if n != 1:
            dims.append(_Dim(n, s, d, index))
        index *= n
    dims.sort(key=lambda dim: abs(dim.dst), reverse=True)
    merged: list[_Dim] = []
    for dim in dims:
        last = merged[-1] if merged else None
        inner = (dim.src * dim.size, dim.dst * dim.size, dim.index * dim.size)
        if last is not None and (last.src, last.dst, last.index) == inner:
            merged[-1] = _Dim(last.size * dim.size, dim.src, dim.dst, dim.index)
        else:
            merged.append(dim)
    return merged


def strided_args(x: Tensor, out: Tensor, seed: int, site: int) -> CastArgs:
    """Return the arguments for tensors of any strides. ValueError if more than 16 dimensions remain after merging."""
    args = cast_args(x.data_ptr(), out.data_ptr(), out.numel(), seed, site)
    dims = merged_dims(out.shape, x.stride(), out.stride())
    if len(dims) > MAX_DIMS:
        raise ValueError(f"{len(dims)} dimensions: at most {MAX_DIMS} are supported. Flatten some of them.")
    args.dims = len(dims)
    for k, dim in enumerate(dims):
        args.size[k], args.src_stride[k], args.dst_stride[k] = dim.size, dim.src, dim.dst
        args.index_stride[k] = dim.index
    return args


def quantize(x: Tensor, cast: Cast, out: Tensor, seed: int = 0, site: int = Site.QUANTIZE, start: int = 0) -> None:
    """Write ``cast(x)`` into ``out`` of the same shape, on their device and torch's current stream.

    The bits are those of ``gemmsim.backends.cpu.quantize``: one rounding from ``x``'s own precision, then a conversion
    to ``out``'s dtype; NaN becomes the canonical NaN. Strides and float dtypes are free, ``out`` may be ``x``. Random
    bits are those of the elements from ``start`` on.

    Raises:
        UnsupportedSpec: if the format's values do not fit float64.
        CudaError: if the kernel cannot be compiled or launched.
    """
    count = out.numel()
    if count == 0:
        return
    src, dst = x.data_ptr(), out.data_ptr()
    contiguous = x.is_contiguous() and out.is_contiguous() and (src | dst) % 16 == 0 and start % _DRAWS == 0
    source = cast_source(cast, x.dtype, out.dtype, contiguous)
    blocks = cast_blocks(cast, x.dtype, out.dtype, contiguous, count)
    args = cast_args(src, dst, count, seed, site) if contiguous else strided_args(x, out, seed, site)
    args.start = start
    launch(source, out.device, (blocks, 1, 1), args)


#: The casts that CI compiles: every path through cast.h, every dtype.
_LISTED = (
    "e4m3", "e4m3/sat", "e5m2", "e5m10", "bf16", "fp32", "fixed(8,4)", "binary8p3", "e5m10/ftz", "e4m3/rtz",
    "e5m10/sr16", "bf16/sr8", "e5m10/sr20", "e8m0", "binary8p4/srb8",
    "supernormal(4,3)", "supernormal(4,3)/sr8", "binary8(4)/ftz", "bfp(8,1)", "e4m3/rnd",
)  # fmt: skip


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each path through cast.h: all of ``_LISTED`` from float32, all dtypes to e4m3 and e5m10."""
    for text in _LISTED:
        yield cast_source(parse_cast(text), torch.float32, torch.float32)
    for cast in (parse_cast("e4m3"), Cast(parse_cast("e5m10").format, Rounding(RoundingMode.SR, 8))):
        for src in DTYPES:
            if src != torch.float32:
                yield cast_source(cast, src, src)
        yield cast_source(cast, torch.float32, torch.bfloat16)
        yield cast_source(cast, torch.float32, torch.float32, contiguous=False)
    yield cast_source(parse_cast("fp32/ru"), torch.float64, torch.float32)


CONVERSIONS = Conversions(quantize)
cast_into, cast_operand, copy_rounded = CONVERSIONS.cast_into, CONVERSIONS.cast_operand, CONVERSIONS.copy_rounded
