"""Converts tensors to and from block formats on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_int64

import torch
from torch import Tensor

from gemmsim.formats import BlockFormat
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS
from gemmsim.lowering.blocks import source_precision

from ..dtypes import NUMBERS
from .block_records import BlockArgs, block_record
from .shared_library import LibraryError, library

__all__ = ["PACKINGS", "decode_blocks", "encode_blocks", "quantize_blocks"]

#: How codes are packed into bytes, in the order of gemmsim::Packing in block.h.
PACKINGS = ("bytes", "lo_first", "hi_first", "dense")
_ENCODE, _DECODE, _QUANTIZE = range(3)
_ready: ctypes.CDLL | None = None


def encode_blocks(
    x: Tensor,
    fmt: BlockFormat,
    codes: Tensor,
    scales: Tensor,
    dim: int,
    packing: str,
    tensor_scale: Tensor | float | None = None,
) -> None:
    """Write element codes and scale codes of ``x``, whose blocks lie along ``dim``, into uint8 tensors.

    ``x`` may have any float dtype and strides. ``codes`` and ``scales`` have its shape except along ``dim``. There
    ``codes`` has as many bytes as ``packing`` needs, and ``scales`` has one element per block; the last block may be
    shorter. ``tensor_scale`` None means 1.

    Example:
        >>> from gemmsim.backends import cpu
        >>> fmt, codes, scales = gs.formats.parse("mxfp8_e4m3"), *(torch.empty(n, dtype=torch.uint8) for n in (2, 1))
        >>> cpu.encode_blocks(torch.tensor([1.0, 2.9]), fmt, codes, scales, -1, "bytes"); codes, scales
        (tensor([112, 124], dtype=torch.uint8), tensor([120], dtype=torch.uint8))
    """
    args = _args(_ENCODE, fmt, x, codes, scales, None, dim, packing, tensor_scale, x.dtype is torch.bfloat16)
    _run(args)


def decode_blocks(
    codes: Tensor,
    scales: Tensor,
    fmt: BlockFormat,
    out: Tensor,
    dim: int,
    packing: str,
    tensor_scale: Tensor | float | None = None,
) -> None:
    """Write the values of ``codes`` under ``scales`` into ``out``.

    Products are rounded to binary32, then to ``out``'s dtype (nearest even).

    Example:
        >>> from gemmsim.backends import cpu
        >>> codes, scales, out = torch.tensor([0x38, 0x40]).byte(), torch.tensor([128]).byte(), torch.empty(2)
        >>> cpu.decode_blocks(codes, scales, gs.formats.parse("mxfp8_e4m3"), out, -1, "bytes"); out  # 2 * [1, 2]
        tensor([2., 4.])
    """
    _run(_args(_DECODE, fmt, None, codes, scales, out, dim, packing, tensor_scale, False))


def quantize_blocks(
    x: Tensor, fmt: BlockFormat, out: Tensor, dim: int, tensor_scale: Tensor | float | None = None
) -> None:
    """Write the values that decoding ``x``'s codes gives to ``out``.

    ``out`` may have any float dtype and strides, and may be ``x`` itself.

    Example:
        >>> from gemmsim.backends import cpu
        >>> fmt, out = gs.formats.parse("mxfp8_e4m3"), torch.empty(2)
        >>> cpu.quantize_blocks(torch.tensor([1.0, 2.9]), fmt, out, -1); out
        tensor([1., 3.])
    """
    _run(_args(_QUANTIZE, fmt, x, None, None, out, dim, "bytes", tensor_scale, x.dtype is torch.bfloat16))


def _args(
    op: int,
    fmt: BlockFormat,
    x: Tensor | None,
    codes: Tensor | None,
    scales: Tensor | None,
    out: Tensor | None,
    dim: int,
    packing: str,
    tensor_scale: Tensor | float | None,
    is_bfloat16: bool,
) -> BlockArgs:
    values = out if x is None else x
    assert values is not None
    dim %= values.dim()
    if values.dim() - 1 > MAX_BATCH_DIMS:
        raise ValueError(
            f"{values.dim()} dimensions: at most {MAX_BATCH_DIMS + 1} are supported. Flatten some of them."
        )
    args = BlockArgs()
    args.op, args.packing = op, PACKINGS.index(packing)
    args.threads = torch.get_num_threads()
    args.format, args.tables = block_record(fmt, source_precision(fmt, is_bfloat16))
    args.format.tensor_scale = 1.0 if tensor_scale is None else float(tensor_scale)
    if x is not None:
        args.src, args.src_dtype = x.data_ptr(), NUMBERS[x.dtype]
    if out is not None:
        args.dst, args.dst_dtype = out.data_ptr(), NUMBERS[out.dtype]
    args.codes = codes.data_ptr() if codes is not None else None
    args.scales = scales.data_ptr() if scales is not None else None
    tensors = (x, codes, scales, out)
    if _is_one_row(tensors, values, dim, fmt, packing):
        args.k, args.dims = values.numel(), 0
        args.src_step = args.code_step = args.scale_step = args.dst_step = 1
        return args
    args.k = values.shape[dim]
    args.src_step, args.code_step, args.scale_step, args.dst_step = (
        t.stride(dim) if t is not None else 0 for t in tensors
    )
    args.dims = values.dim() - 1
    others = [d for d in range(values.dim()) if d != dim]
    for i, d in enumerate(others):
        args.size[i] = values.shape[d]
        strides = [t.stride(d) if t is not None else 0 for t in tensors]
        args.src_stride[i], args.code_stride[i], args.scale_stride[i], args.dst_stride[i] = strides
    return args


def _is_one_row(tensors: Sequence[Tensor | None], values: Tensor, dim: int, fmt: BlockFormat, packing: str) -> bool:
    """Whether all rows follow each other in memory, with whole blocks and bytes, so that they form one long row."""
    unit = {"bytes": 1, "dense": 4}.get(packing, 2)
    whole = values.shape[dim] % fmt.block_size == 0 and values.shape[dim] % unit == 0
    last = dim == values.dim() - 1
    return last and whole and all(t is None or t.is_contiguous() for t in tensors)


def _run(args: BlockArgs) -> None:
    global _ready
    lib = library()
    if _ready is not lib:
        lib.gemmsim_block_abi.restype = c_int64
        lib.gemmsim_block.argtypes, lib.gemmsim_block.restype = [POINTER(BlockArgs)], c_int
        if lib.gemmsim_block_abi() != ctypes.sizeof(BlockArgs):
            raise LibraryError(
                f"gemmsim's CPU library has block records of {lib.gemmsim_block_abi()} bytes; this Python code needs "
                f"{ctypes.sizeof(BlockArgs)}. Install the package again so that both come from one version."
            )
        _ready = lib
    if lib.gemmsim_block(byref(args)):
        raise MemoryError("gemmsim: no memory for the work space of one block per thread. Use smaller blocks.")
