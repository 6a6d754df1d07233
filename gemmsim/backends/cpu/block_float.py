"""Formats of tensors on the CPU: block floating point, finite floats, scaled blocks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.formats import BlockFloatFormat, FiniteFloatFormat, FixedFormat, Sharing, TensorFormat

from .grid_params import MODES
from .library import LibraryError, library
from .quantize import DTYPES, SITE_QUANTIZE
from .records import MAX_BATCH_DIMS

__all__ = [
    "ABSOLUTE",
    "FLUSH",
    "KEEP_INFINITY",
    "LOWEST_CODE",
    "BlockFloatArgs",
    "FiniteFloatArgs",
    "arranged",
    "described",
    "quantize_tensor",
]

#: gemmsim::BlockFloatFlags, gemmsim::FiniteFloatFlags.
LOWEST_CODE, KEEP_INFINITY = 1, 2
FLUSH, ABSOLUTE = 1, 2
_FINITE_FLOATS, _SCALED_FLOATS, _SCALED_INTEGERS = 1, 2, 3
#: How the elements of a format that has no blocks are cut.
_PIECE = 2048
_Dims = c_int64 * MAX_BATCH_DIMS
_ready: ctypes.CDLL | None = None


class FiniteFloatArgs(ctypes.Structure):
    """gemmsim::FiniteFloatArgs (cutlass_kernels/cpu/block_float.h)."""

    _fields_ = [
        ("max", c_double), ("trailing", c_int32), ("emin", c_int32), ("flags", c_int32), ("mode", c_int32),
    ]  # fmt: skip


class BlockFloatArgs(ctypes.Structure):
    """gemmsim::BlockFloatArgs (cutlass_kernels/cpu/block_float.h)."""

    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p),
        ("src_dtype", c_int32), ("dst_dtype", c_int32), ("outer_dims", c_int32), ("inner_dims", c_int32),
        ("mode", c_int32), ("rbits", c_int32), ("site", c_int32), ("threads", c_int32),
        ("bits", c_int32), ("flags", c_int32), ("block", c_int64),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims), ("index_stride", _Dims),
        ("seed", c_uint64),
        ("element", FiniteFloatArgs), ("scaler", FiniteFloatArgs),
        ("kind", c_int32), ("clamp", c_int32), ("shift", c_int32), ("unused", c_int32),
    ]  # fmt: skip


class _Dim(NamedTuple):
    size: int
    src: int
    dst: int
    place: int


def quantize_tensor(x: Tensor, fmt: TensorFormat, out: Tensor, seed: int = 0, site: int = SITE_QUANTIZE) -> None:
    """Write ``x`` rounded to ``fmt`` into ``out`` of the same shape; strides and dtypes are free, ``out`` may be ``x``.

    ``fmt.dim`` is a dimension of ``x``. Random bits belong to the row-major logical index of each element. Values of
    block floating point are exact in ``x``'s dtype, others in binary32, then converted to ``out``'s (nearest even).
    """
    if x.numel() == 0:
        return
    if x.dim() > MAX_BATCH_DIMS and not (x.is_contiguous() and out.is_contiguous()):
        rounded = torch.empty(x.shape, dtype=out.dtype)
        quantize_tensor(x.contiguous(), fmt, rounded, seed, site)
        out.copy_(rounded)
        return
    outer, inner, block = arranged(x, fmt, out)
    args = described(fmt)
    args.src, args.dst = x.data_ptr(), out.data_ptr()
    args.src_dtype, args.dst_dtype = DTYPES[x.dtype], DTYPES[out.dtype]
    args.outer_dims, args.inner_dims = len(outer), len(inner)
    args.mode, args.rbits = MODES[fmt.rounding.mode], fmt.rounding.bits
    args.site, args.seed, args.threads = site, seed, torch.get_num_threads()
    args.block = block
    for at, dim in enumerate((*outer, *inner)):
        args.size[at], args.src_stride[at], args.dst_stride[at], args.index_stride[at] = dim
    if _function()(byref(args)):
        raise MemoryError("gemmsim: no memory for the exponents of all blocks. Use fewer blocks.")


def described(fmt: TensorFormat) -> BlockFloatArgs:
    """A record with the fields that the format alone gives."""
    args = BlockFloatArgs()
    if isinstance(fmt, BlockFloatFormat):
        args.bits = fmt.bits
        args.flags = (0 if fmt.symmetric else LOWEST_CODE) | (KEEP_INFINITY if fmt.keep_infinity else 0)
    elif isinstance(fmt, FiniteFloatFormat):
        args.kind, args.element = _FINITE_FLOATS, _float_args(fmt)
    elif isinstance(fmt.element, FiniteFloatFormat):
        # after scaling, eight exponent bits reach their own largest number: only float32 itself has the smaller range
        args.kind, args.element = _SCALED_FLOATS, _float_args(fmt.element)
        args.element.max, args.shift = fmt.element.max, 1 << (fmt.element.exponent_bits - 1)
    else:
        assert fmt.scaler is not None and isinstance(fmt.element.format, FixedFormat)
        args.kind, args.bits, args.clamp = _SCALED_INTEGERS, fmt.bits, fmt.element.format.clamp
        args.scaler = _float_args(fmt.scaler)
    return args


def _float_args(fmt: FiniteFloatFormat) -> FiniteFloatArgs:
    flags = (FLUSH if fmt.flush else 0) | (ABSOLUTE if fmt.absolute else 0)
    largest = math.inf if fmt.exponent_bits == 8 else fmt.max
    return FiniteFloatArgs(largest, fmt.trailing_bits, fmt.emin, flags, MODES[fmt.rounding.mode])


def arranged(x: Tensor, fmt: TensorFormat, out: Tensor) -> tuple[list[_Dim], list[_Dim], int]:
    """Dimensions that tell blocks apart, those inside a block, and how the last one is cut (0: not at all)."""
    by_tensor = fmt.sharing is Sharing.TENSOR
    elements = isinstance(fmt, FiniteFloatFormat)
    at = 0 if by_tensor else fmt.dim % x.dim()
    shape: Sequence[int] = x.shape
    if x.is_contiguous() and out.is_contiguous():
        # three dimensions say it all: before, at and after
        before, after = math.prod(shape[:at]), math.prod(shape[at + 1 :])
        shape = (1, x.numel(), 1) if by_tensor else (before, shape[at], after)
        if fmt.sharing is Sharing.BLOCK and after == 1 and shape[1] % fmt.block_size == 0:
            shape = (1, x.numel(), 1)
        at = 1
        strides: list[Sequence[int]] = [_row_major(shape)] * 3
    else:
        strides = [x.stride(), out.stride(), _row_major(shape)]
    dims = [_Dim(*values) for values in zip(shape, *strides, strict=True)]
    if elements:
        real = _real(dims)
        return real[:-1], real[-1:] or [_Dim(1, 1, 1, 1)], _PIECE
    if fmt.sharing is Sharing.INDEX:
        outer, inner = [dims[at]], _real(dims[:at] + dims[at + 1 :])
    elif fmt.sharing is Sharing.TENSOR:
        outer, inner = [], _real(dims)
    else:
        outer, inner = [dim for dim in dims[:at] + dims[at + 1 :] if dim.size != 1], [dims[at]]
    return outer, inner or [_Dim(1, 1, 1, 1)], fmt.block_size


def _real(dims: list[_Dim]) -> list[_Dim]:
    return [dim for dim in dims if dim.size != 1]


def _row_major(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[at + 1 :]) for at in range(len(shape))]


def _function() -> ctypes._NamedFuncPointer:
    global _ready
    lib = library()
    if _ready is not lib:
        lib.gemmsim_block_float_abi.restype = c_int64
        lib.gemmsim_block_float.argtypes, lib.gemmsim_block_float.restype = [POINTER(BlockFloatArgs)], c_int
        if lib.gemmsim_block_float_abi() != ctypes.sizeof(BlockFloatArgs):
            raise LibraryError(
                f"gemmsim's CPU library has block float records of {lib.gemmsim_block_float_abi()} bytes; this Python "
                f"code needs {ctypes.sizeof(BlockFloatArgs)}. Install the package again so that both come from one "
                "version."
            )
        _ready = lib
    return lib.gemmsim_block_float
