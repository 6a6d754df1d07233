"""Scaled casts on the CPU: one pass over a tensor with a scale per tensor, axis, element or block."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_int32, c_int64, c_void_p

import torch
from torch import Tensor

from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS
from gemmsim.lowering.scaled_cast_ids import TIES, GridNumbers

from ..dtypes import NUMBERS
from .shared_library import LibraryError, library

__all__ = ["AMAX_NOT_FINITE", "NEGATIVE_INPUT", "affine_cast", "scaled_blocks", "scaled_cast"]

#: Status bits that the kernels return, as gemmsim::ScaledStatus in scaled_cast.h.
NEGATIVE_INPUT, AMAX_NOT_FINITE = 1, 2
_GIVEN, _AFFINE = 0, 4
_BLOCK_RULES = {"amax": 1, "e8m0": 2, "e4m3": 3}
_Dims = c_int64 * MAX_BATCH_DIMS
_ready: ctypes.CDLL | None = None


class _Grid(ctypes.Structure):
    _fields_ = [
        ("integer", c_int32), ("ties", c_int32), ("trailing", c_int32), ("emin", c_int32),
        ("low", c_float), ("high", c_float),
    ]  # fmt: skip


class ScaledArgs(ctypes.Structure):
    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p), ("amax", c_void_p), ("second", c_void_p),
        ("src_dtype", c_int32), ("dst_dtype", c_int32), ("dims", c_int32), ("threads", c_int32),
        ("rule", c_int32), ("emit_integers", c_int32), ("tensor_scale", c_float), ("steps", c_float),
        ("block", c_int64), ("grid", _Grid),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims), ("amax_stride", _Dims), ("second_stride", _Dims),
    ]  # fmt: skip


def scaled_cast(
    x: Tensor,
    grid: GridNumbers,
    out: Tensor,
    *,
    amax: Tensor | None = None,
    bias: Tensor | None = None,
    integers: bool = False,
) -> int:
    """Write ``x`` on ``grid`` scaled by ``amax`` to ``out`` (its shape; any strides and float dtypes; may be ``x``).

    ``amax`` and ``bias`` broadcast to ``x``; None means no scale and no bias. ``integers``: write the integers without
    scaling them back. The arithmetic is float32. Returns a sum of status bits.
    """
    args = _arguments(x, grid, out, _GIVEN)
    args.emit_integers = integers
    kept = [_spread(args, "amax", amax, out), _spread(args, "second", bias, out)]
    return _run(args, kept, x, out)


def affine_cast(x: Tensor, low: Tensor, high: Tensor, num_bits: int, out: Tensor) -> int:
    """Write ``x`` on 2^num_bits equally spaced values from ``low`` to ``high``, one of which is zero, to ``out``."""
    half = 2.0 ** (num_bits - 1)
    args = _arguments(x, GridNumbers(True, -half, half - 1), out, _AFFINE)
    args.steps = 2.0**num_bits - 1
    kept = [_spread(args, "amax", low, out), _spread(args, "second", high, out)]
    return _run(args, kept, x, out)


def scaled_blocks(x: Tensor, grid: GridNumbers, size: int, scale: str, tensor_scale: float, out: Tensor) -> int:
    """Write ``x`` to ``out``, with a scale for each block of ``size`` elements along the last dimension.

    ``scale``: "amax" (the largest magnitude), "e8m0" (its power of two, rounded up), "e4m3" (under ``tensor_scale``).
    """
    args = _arguments(x, grid, out, _BLOCK_RULES[scale])
    args.block = min(size, x.shape[-1])
    args.tensor_scale = tensor_scale
    return _run(args, [], x, out)


def _arguments(x: Tensor, grid: GridNumbers, out: Tensor, rule: int) -> ScaledArgs:
    args = ScaledArgs()
    args.src, args.dst = x.data_ptr(), out.data_ptr()
    args.src_dtype, args.dst_dtype = NUMBERS[x.dtype], NUMBERS[out.dtype]
    args.rule = rule
    args.grid = _Grid(grid.integer, TIES.index(grid.ties), grid.trailing, grid.emin, grid.low, grid.high)
    args.threads = torch.get_num_threads()
    return args


def _spread(args: ScaledArgs, name: str, t: Tensor | None, out: Tensor) -> Tensor | None:
    """Put the strides of ``t`` over the dimensions of ``out`` into the record, and return ``t`` in float32.

    The caller must keep the result alive until the call.
    """
    if t is None:
        return None
    t = t.to(torch.float32)
    setattr(args, name, t.data_ptr())
    spread = t.expand(out.shape)
    strides = getattr(args, f"{name}_stride")
    for d, (size, stride) in enumerate(zip(out.shape, spread.stride(), strict=True)):
        if d < MAX_BATCH_DIMS:
            strides[d] = stride if size > 1 else 0
    return t


def _run(args: ScaledArgs, kept: list[Tensor | None], x: Tensor, out: Tensor) -> int:
    if out.dim() > MAX_BATCH_DIMS:
        raise ValueError(f"{out.dim()} dimensions: at most {MAX_BATCH_DIMS} are supported. Flatten some of them.")
    args.dims = out.dim()
    for d, (size, source, target) in enumerate(zip(out.shape, x.stride(), out.stride(), strict=True)):
        args.size[d], args.src_stride[d], args.dst_stride[d] = size, source, target
    status = int(_library().gemmsim_scaled_cast(byref(args)))
    if status < 0:
        raise MemoryError("gemmsim: no memory for the work space of one block per thread. Use smaller blocks.")
    return status


def _library() -> ctypes.CDLL:
    global _ready
    lib = library()
    if _ready is not lib:
        lib.gemmsim_scaled_abi.restype = c_int64
        lib.gemmsim_scaled_cast.argtypes, lib.gemmsim_scaled_cast.restype = [POINTER(ScaledArgs)], c_int
        if lib.gemmsim_scaled_abi() != ctypes.sizeof(ScaledArgs):
            raise LibraryError(
                f"gemmsim's CPU library has scaled-cast records of {lib.gemmsim_scaled_abi()} bytes; this Python code "
                f"needs {ctypes.sizeof(ScaledArgs)}. Install the package again so that both come from one version."
            )
        _ready = lib
    return lib
