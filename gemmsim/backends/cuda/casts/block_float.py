"""Kernels of family ``block_float``: casts to formats of tensors (cutlass_kernels/cast/block_float.h)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from ctypes import c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.formats import TensorFormat, parse_tensor_format
from gemmsim.lowering.abi_constants import MODES, Site
from gemmsim.lowering.tensor_formats import BlockKind, FiniteFloat, tensor_numbers

from ...block_layout import arranged
from ...dtypes import DTYPES
from ..jit.launch import launch
from ..jit.source import KernelSource, double_literal
from .cast import MAX_DIMS

__all__ = ["BlockFloatLaunch", "block_float_source", "quantize_tensor", "sources"]

_THREADS = 256
_WHOLE, _MEASURE, _ROUND = 0, 1, 2
#: Elements of a group from which several blocks of threads share it, and elements of the slice of each block.
_LONG, _SLICE = 1 << 14, 1 << 12

_Dims = c_int64 * MAX_DIMS


class BlockFloatLaunch(ctypes.Structure):
    """gemmsim::BlockFloatLaunch, field by field."""

    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p), ("largest", c_void_p),
        ("groups", c_int64), ("length", c_int64), ("block", c_int64), ("slice", c_int64), ("seed", c_uint64),
        ("site", c_int32), ("team", c_int32), ("outer", c_int32), ("inner", c_int32),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims), ("index_stride", _Dims),
    ]  # fmt: skip


def _float_literal(one: FiniteFloat) -> str:
    """Return the initializer of a ``gemmsim::FiniteFloat``."""
    return (
        f"{{.max = {double_literal(one.max)}, .trailing = {one.trailing}, .emin = {one.emin}, .mode = {one.mode}, "
        f".flush = {int(one.flush)}, .absolute = {int(one.absolute)}}}"
    )


@lru_cache(maxsize=1024)
def block_float_source(fmt: TensorFormat, src: torch.dtype, dst: torch.dtype, kernel_pass: int) -> KernelSource:
    """Return the kernel of one pass that rounds ``src`` tensors of any strides to ``fmt`` and stores ``dst``.

    ``kernel_pass`` is the pass in block_float.h.
    """
    a, b = DTYPES[src].label, DTYPES[dst].label
    numbers, mode = tensor_numbers(fmt), MODES[fmt.rounding.mode]
    fields = (
        f".src = gemmsim::{a}, .dst = gemmsim::{b}, .pass = {kernel_pass}, .mode = {mode}, "
        f".rbits = {fmt.rounding.bits}, .bits = {numbers.bits}, .lowest_code = {int(numbers.lowest_code)}, "
        f".keep_infinity = {int(numbers.keep_infinity)}, "
        f".kind = gemmsim::BlockKind::{numbers.kind.name}, "
        f".element = {_float_literal(numbers.element)}, "
        f".scaler = {_float_literal(numbers.scaler)}, "
        f".shift = {numbers.shift}, .clamp = {int(numbers.clamp)}"
    )
    text = (
        '#include "cast/block_float.h"\n'
        f"constexpr gemmsim::BlockFloatConfig kConfig{{{fields}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) '
        "gemmsim_kernel(const gemmsim::BlockFloatLaunch args) {\n"
        "    gemmsim::block_float_body<kConfig>(args, threadIdx.x, blockIdx.x);\n"
        "}\n"
    )
    what = ("", "measure, ", "round, ")[kernel_pass]
    shared = 0 if kernel_pass == _ROUND or numbers.kind == BlockKind.FINITE_FLOATS else 8 * _THREADS
    element = f"{numbers.bits} bits /{fmt.rounding}" if numbers.kind == BlockKind.SHARED_EXPONENT else str(fmt)
    name = f"{what}{element}, {a.lower()} to {b.lower()}"
    return KernelSource("block_float", name, text, _THREADS, shared_bytes=shared)


def quantize_tensor(x: Tensor, fmt: TensorFormat, out: Tensor, seed: int = 0, site: int = Site.QUANTIZE) -> None:
    """Write ``x`` rounded to ``fmt`` into ``out`` of the same shape, on their device and torch's current stream.

    The bits are those of ``gemmsim.backends.cpu.quantize_tensor``; NaN becomes the canonical NaN. Strides and float
    dtypes are free, ``out`` may be ``x``.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    if x.numel() == 0:
        return
    if x.dim() > MAX_DIMS and not (x.is_contiguous() and out.is_contiguous()):
        rounded = torch.empty(x.shape, dtype=out.dtype, device=x.device)
        quantize_tensor(x.contiguous(), fmt, rounded, seed, site)
        out.copy_(rounded)
        return
    outer, inner, block = arranged(x, fmt, out)
    args = BlockFloatLaunch(src=x.data_ptr(), dst=out.data_ptr(), block=block, seed=seed, site=site)
    args.outer, args.inner = len(outer), len(inner)
    for at, dim in enumerate((*outer, *inner)):
        args.size[at], args.src_stride[at], args.dst_stride[at], args.index_stride[at] = dim
    size = math.prod(dim.size for dim in inner)
    args.length = min(block, size) if block else size
    args.groups = math.prod(dim.size for dim in outer) * (-(-size // block) if block else 1)
    long = args.length > _LONG
    args.slice = _SLICE if long else args.length
    args.team = min(_THREADS, 1 << (min(args.slice, _THREADS) - 1).bit_length())
    blocks = (-(-args.groups * -(-args.length // args.slice) // (_THREADS // args.team)), 1, 1)
    largest = torch.zeros(args.groups, dtype=torch.int64, device=x.device) if long else None
    args.largest = None if largest is None else largest.data_ptr()
    for kernel_pass in (_MEASURE, _ROUND) if long else (_WHOLE,):
        launch(block_float_source(fmt, x.dtype, out.dtype, kernel_pass), out.device, blocks, args)


def sources() -> Iterator[KernelSource]:
    """Yield samples: nearest and stochastic rounding, both passes of long groups, 16 bits and float64, every kind."""
    f32 = torch.float32
    plain, random = parse_tensor_format("bfp(8,16)"), parse_tensor_format("bfp(8,64)/sr8")
    yield block_float_source(plain, f32, f32, _WHOLE)
    yield block_float_source(plain, f32, f32, _MEASURE)
    yield block_float_source(plain, f32, f32, _ROUND)
    yield block_float_source(random, f32, f32, _WHOLE)
    yield block_float_source(plain, torch.bfloat16, torch.bfloat16, _WHOLE)
    yield block_float_source(plain, torch.float64, torch.float64, _WHOLE)
    for text in ("FP[1|4|3,7](_N)", "FP[1|5|2,15](FS)", "MXFP8[E4M3]{32}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}"):
        yield block_float_source(parse_tensor_format(text), f32, f32, _WHOLE)
    yield block_float_source(parse_tensor_format("MXFP8[E4M3]{32}"), torch.bfloat16, torch.bfloat16, _WHOLE)
