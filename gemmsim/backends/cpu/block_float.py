"""Rounds tensors to formats of whole tensors on the CPU: block floating point, finite floats, scaled blocks."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p

import torch
from torch import Tensor

from gemmsim.formats import TensorFormat
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, MODES, Site
from gemmsim.lowering.tensor_formats import FiniteFloat, tensor_numbers

from ..block_layout import arranged
from ..dtypes import NUMBERS
from .shared_library import LibraryError, library

__all__ = ["BlockFloatArgs", "FiniteFloatArgs", "described", "quantize_tensor"]

#: gemmsim::BlockFloatFlags, gemmsim::FiniteFloatFlags.
_LOWEST_CODE, _KEEP_INFINITY = 1, 2
_FLUSH, _ABSOLUTE = 1, 2
_Dims = c_int64 * MAX_BATCH_DIMS
_ready: ctypes.CDLL | None = None


class FiniteFloatArgs(ctypes.Structure):
    """gemmsim::FiniteFloatArgs (cutlass_kernels/cpu/casts/block_float.h)."""

    _fields_ = [
        ("max", c_double), ("trailing", c_int32), ("emin", c_int32), ("flags", c_int32), ("mode", c_int32),
    ]  # fmt: skip


class BlockFloatArgs(ctypes.Structure):
    """gemmsim::BlockFloatArgs (cutlass_kernels/cpu/casts/block_float.h)."""

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


def quantize_tensor(x: Tensor, fmt: TensorFormat, out: Tensor, seed: int = 0, site: int = Site.QUANTIZE) -> None:
    """Write ``x`` rounded to ``fmt`` into ``out`` of the same shape; strides and dtypes are free, ``out`` may be ``x``.

    ``fmt.dim`` is a dimension of ``x``. Random bits belong to the row-major logical index of each element. Values of
    block floating point are exact in ``x``'s dtype, other values in binary32. They are then converted to ``out``'s
    dtype (nearest even).

    Raises:
        MemoryError: without memory for the exponents of all blocks.

    Example:
        >>> from gemmsim.backends import cpu
        >>> fmt, out = gs.formats.parse("bfp(4,2)"), torch.empty(2)
        >>> cpu.quantize_tensor(torch.tensor([1.0, 2.9]), fmt, out); out
        tensor([1., 3.])
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
    args.src_dtype, args.dst_dtype = NUMBERS[x.dtype], NUMBERS[out.dtype]
    args.outer_dims, args.inner_dims = len(outer), len(inner)
    args.mode, args.rbits = MODES[fmt.rounding.mode], fmt.rounding.bits
    args.site, args.seed, args.threads = site, seed, torch.get_num_threads()
    args.block = block
    for at, dim in enumerate((*outer, *inner)):
        args.size[at], args.src_stride[at], args.dst_stride[at], args.index_stride[at] = dim
    if _function()(byref(args)):
        raise MemoryError("gemmsim: no memory for the exponents of all blocks. Use fewer blocks.")


def described(fmt: TensorFormat) -> BlockFloatArgs:
    """Return a record with the fields that follow from the format alone."""
    numbers = tensor_numbers(fmt)
    args = BlockFloatArgs(kind=numbers.kind, bits=numbers.bits, clamp=numbers.clamp, shift=numbers.shift)
    args.flags = _LOWEST_CODE * numbers.lowest_code | _KEEP_INFINITY * numbers.keep_infinity
    args.element, args.scaler = _float_args(numbers.element), _float_args(numbers.scaler)
    return args


def _float_args(one: FiniteFloat) -> FiniteFloatArgs:
    flags = _FLUSH * one.flush | _ABSOLUTE * one.absolute
    return FiniteFloatArgs(one.max, one.trailing, one.emin, flags, one.mode)


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
