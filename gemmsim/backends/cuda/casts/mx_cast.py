"""Kernels of family ``mx_cast``: tensors to block formats and back (cutlass_kernels/mx/cast.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_float, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.formats import BlockFormat, parse_block
from gemmsim.lowering.blocks import BlockRule, block_numbers, log2_steps, source_precision

from ...dtypes import DTYPES
from ..jit.launch import launch
from ..jit.source import KernelSource
from .mx_format import mx_literal

__all__ = ["MxArgs", "decode_blocks", "encode_blocks", "mx_source", "quantize_blocks", "sources"]

#: MX_THREADS and MX_COLUMN_THREADS. Columns have fewer threads, so that a matrix of 1024^2 uses every multiprocessor.
_THREADS = {"whole": 256, "columns": 64, "any": 256}
_MAX_DIMS = 17
_LOG2_STEPS = 320
_Dims = c_int64 * _MAX_DIMS
_PACKINGS = {"bytes": "BYTES", "lo_first": "LOW_FIRST", "hi_first": "HIGH_FIRST", "dense": "DENSE"}
#: For each packing: bits of a code in memory, and the number of codes that share bytes.
_WIDTH = {"bytes": 8, "lo_first": 4, "hi_first": 4, "dense": 6}
_UNIT = {"bytes": 1, "lo_first": 2, "hi_first": 2, "dense": 4}


class MxArgs(ctypes.Structure):
    """gemmsim::MxArgs, field by field."""

    _fields_ = [
        ("src", c_void_p), ("codes", c_void_p), ("scales", c_void_p), ("dst", c_void_p), ("second", c_void_p),
        ("count", c_uint64), ("k", c_int64),
        ("second_value", c_float), ("dims", c_int32), ("along", c_int32), ("reserved", c_int32),
        ("src_step", c_int64), ("code_step", c_int64), ("scale_step", c_int64), ("dst_step", c_int64),
        ("size", _Dims), ("src_stride", _Dims), ("code_stride", _Dims), ("scale_stride", _Dims), ("dst_stride", _Dims),
        ("log2_from", c_int32 * _LOG2_STEPS),
    ]  # fmt: skip


def _pack(src: torch.dtype, dst: torch.dtype) -> tuple[int, int]:
    """Return WholeBlocks<K>::N and PACKS: elements of a pack, and packs of a thread."""
    width = max(DTYPES[src].bytes, DTYPES[dst].bytes)
    return (8 if width == 2 else 4), (1 if width == 8 else 2)


def takes_whole(fmt: BlockFormat, src: torch.dtype, dst: torch.dtype) -> bool:
    """Whether neighbouring threads can share the blocks of ``fmt``.

    A block needs a power of two of threads, up to 32, with one pack each.
    """
    lanes, rest = divmod(fmt.block_size, _pack(src, dst)[0])
    return rest == 0 and 1 <= lanes <= 32 and lanes & (lanes - 1) == 0


def _columns(dtype: torch.dtype) -> int:
    """Return ColumnBlocks<K>::N: the columns of a thread, which are 8 bytes of each row."""
    return 8 // DTYPES[dtype].bytes


def _work(fmt: BlockFormat, src: torch.dtype, dst: torch.dtype, layout: str) -> int:
    """Return the number of elements of a thread, for the count of instructions."""
    if layout == "whole":
        n, packs = _pack(src, dst)
        return n * packs
    if layout == "columns":
        return fmt.block_size * _columns(src)
    return fmt.block_size if fmt.block_size <= 32 else 1


def _share(fmt: BlockFormat, packing: str) -> int:
    """Return AnyBlocks<K>::BLOCKS: the number of neighbouring blocks that together end at a byte."""
    return next(n for n in (1, 2, 4) if fmt.block_size * n % _UNIT[packing] == 0)


@lru_cache(maxsize=4096)
def mx_source(
    op: str, fmt: BlockFormat, src: torch.dtype, dst: torch.dtype, packing: str = "bytes", layout: str = "whole"
) -> KernelSource:
    """Return the kernel of ``op`` ("encode", "decode", "quantize").

    ``src`` and ``dst`` are equal where the operation has only one tensor of values. ``layout``: "whole" for complete
    blocks that follow each other in memory, aligned to 16 bytes; "columns" for blocks across rows whose elements form
    aligned words along the rows; "any" for all others.
    """
    a, b = DTYPES[src].label, DTYPES[dst].label
    fields = (
        f".op = gemmsim::MxOp::{op.upper()}, .src = gemmsim::{a}, .dst = gemmsim::{b}, "
        f".packing = gemmsim::Packing::{_PACKINGS[packing]}, .layout = gemmsim::MxLayout::{layout.upper()}, "
        f".format = {mx_literal(fmt)}"
    )
    bounds = f"__launch_bounds__({_THREADS[layout]})"
    text = (
        '#include "mx/cast.h"\n'
        f"constexpr gemmsim::MxConfig kConfig{{{fields}}};\n"
        f'extern "C" __global__ void {bounds} gemmsim_kernel(const gemmsim::MxArgs args) {{\n'
        "    gemmsim::mx_body<kConfig>(args, threadIdx.x, blockIdx.x);\n"
        "}\n"
    )
    types = {"encode": f"{a} {packing}", "decode": f"{packing} {b}", "quantize": f"{a} to {b}"}[op].lower()
    name = f"{op} {fmt}, {types}, {layout}"
    return KernelSource("mx_cast", name, text, _THREADS[layout], work=_work(fmt, src, dst, layout))


@dataclass
class _Call:
    """One conversion and its tensors, which all have blocks along ``dim``."""

    op: str
    fmt: BlockFormat
    x: Tensor | None
    codes: Tensor | None
    scales: Tensor | None
    out: Tensor | None
    dim: int
    packing: str

    @property
    def values(self) -> Tensor:
        found = self.out if self.x is None else self.x
        assert found is not None
        return found

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.x, self.codes, self.scales, self.out

    @property
    def dtypes(self) -> tuple[torch.dtype, torch.dtype]:
        src, dst = self.x if self.x is not None else self.values, self.out if self.out is not None else self.values
        return src.dtype, dst.dtype

    def is_whole(self) -> bool:
        """Whether all rows follow each other in memory, with complete blocks, packs and bytes, aligned."""
        size, last = self.values.shape[self.dim], self.dim == self.values.dim() - 1
        if not (last and size % self.fmt.block_size == 0 and size % _UNIT[self.packing] == 0):
            return False
        if not takes_whole(self.fmt, *self.dtypes):
            return False
        code_bytes = _pack(*self.dtypes)[0] * _WIDTH[self.packing] // 8
        aligned = (16, code_bytes & -code_bytes, 1, 16)
        return all(
            t is None or (t.is_contiguous() and t.data_ptr() % unit == 0)
            for t, unit in zip(self.tensors, aligned, strict=True)
        )

    def column_dim(self) -> int | None:
        """Return the dimension of which a thread processes several neighbours together.

        All tensors must have these neighbours adjacent in memory, in complete and aligned words. ``None`` if there is
        no such dimension, or no kernel for the operation.
        """
        x, codes, scales = self.x, self.codes, self.scales
        if x is None or codes is None or scales is None or x.dtype == torch.float64:
            return None
        if self.packing == "dense" or self.fmt.block_size > 32 or self.fmt.block_size % _UNIT[self.packing]:
            return None
        n = _columns(x.dtype)
        tensors = ((x, 8), (codes, n), (scales, n))
        if any(t.data_ptr() % unit for t, unit in tensors):
            return None
        for d in range(x.dim()):
            if d == self.dim or x.shape[d] % n or any(t.stride(d) != 1 for t, _ in tensors):
                continue
            others = [(t.shape[e], t.stride(e)) for t, _ in tensors for e in range(x.dim()) if e != d]
            if all(size == 1 or stride % n == 0 for size, stride in others):
                return d
        return None


def _strides(call: _Call, d: int) -> tuple[int, ...]:
    return tuple(t.stride(d) if t is not None else 0 for t in call.tensors)


def _merged(dims: Sequence[tuple[int, tuple[int, ...], bool]]) -> list[tuple[int, tuple[int, ...], bool]]:
    """Merge neighbouring dimensions where all tensors allow it. The dimension of blocks is not merged."""
    merged: list[tuple[int, tuple[int, ...], bool]] = []
    for size, strides, along in dims:
        if merged and not along and not merged[-1][2] and merged[-1][1] == tuple(s * size for s in strides):
            merged[-1] = (merged[-1][0] * size, strides, False)
        else:
            merged.append((size, strides, along))
    return merged


def _count_shares(call: _Call, args: MxArgs, column_dim: int | None) -> None:
    """Fill the dimensions of threads' shares, in the order of the strides of the float tensor that moves most bytes.

    A share has several neighbours of ``column_dim``.
    """
    values, dim, fmt = call.values, call.dim, call.fmt
    blocks = _share(fmt, call.packing) if column_dim is None else 1
    args.k = values.shape[dim]
    shares = -(-args.k // (fmt.block_size * blocks))
    step = _strides(call, dim)
    args.src_step, args.code_step, args.scale_step, args.dst_step = step
    elements = fmt.block_size * blocks
    along = (step[0] * elements, step[1] * (elements * _WIDTH[call.packing] // 8), step[2] * blocks, step[3] * elements)
    n = {column_dim: _columns(values.dtype)}
    dims = [
        (values.shape[d] // n.get(d, 1), tuple(s * n.get(d, 1) for s in _strides(call, d)), False)
        for d in range(values.dim())
        if d != dim
    ]
    dims = [one for one in dims if one[0] != 1] + [(shares, along, True)]
    leading = 3 if call.x is None else 0
    dims = _merged(sorted(dims, key=lambda one: abs(one[1][leading]), reverse=True))
    if len(dims) > _MAX_DIMS:
        raise ValueError(f"{len(dims)} dimensions: at most {_MAX_DIMS} are supported. Flatten some of them.")
    args.dims, args.count = len(dims), 1
    for i, (size, strides, is_along) in enumerate(dims):
        args.count *= size
        args.size[i] = size
        args.src_stride[i], args.code_stride[i], args.scale_stride[i], args.dst_stride[i] = strides
        if is_along:
            args.along = i


def _run(call: _Call, tensor_scale: Tensor | float | None) -> None:
    values = call.values
    call.dim %= values.dim()
    if values.numel() == 0:
        return
    args = MxArgs()
    addresses = (t.data_ptr() if t is not None else None for t in call.tensors)
    args.src, args.codes, args.scales, args.dst = addresses
    if isinstance(tensor_scale, Tensor) and tensor_scale.device == values.device:
        args.second = tensor_scale.data_ptr()
    elif tensor_scale is not None:
        args.second_value = float(tensor_scale)
    rule = block_numbers(call.fmt).rule
    if rule.takes_logarithm:
        precision = source_precision(call.fmt, call.dtypes[0] is torch.bfloat16)
        args.log2_from[:] = log2_steps(precision, rule is BlockRule.LOG2_CEIL)
    if call.is_whole():
        layout, args.count = "whole", values.numel()
        shares = -(-args.count // _work(call.fmt, *call.dtypes, layout))
    else:
        column_dim = call.column_dim()
        layout = "any" if column_dim is None else "columns"
        _count_shares(call, args, column_dim)
        shares = args.count
    source = mx_source(call.op, call.fmt, *call.dtypes, call.packing, layout)
    launch(source, values.device, (-(-shares // source.threads), 1, 1), args)


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

    The bits are those of ``gemmsim.backends.cpu.encode_blocks``, for any float dtype and strides, on the tensors'
    device and torch's current stream. ``tensor_scale`` is for formats that have one. A tensor on the device is read
    there, so that nothing waits for the GPU.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    _run(_Call("encode", fmt, x, codes, scales, None, dim, packing), tensor_scale)


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
    """
    _run(_Call("decode", fmt, None, codes, scales, out, dim, packing), tensor_scale)


def quantize_blocks(
    x: Tensor, fmt: BlockFormat, out: Tensor, dim: int, tensor_scale: Tensor | float | None = None
) -> None:
    """Write the values that decoding ``x``'s codes gives to ``out``.

    ``out`` may have any float dtype and strides, and may be ``x`` itself.
    """
    _run(_Call("quantize", fmt, x, None, None, out, dim, "bytes"), tensor_scale)


#: The kernels that CI compiles: operation, format, dtypes, packing, layout. They cover each path in cutlass_kernels/mx.
_F32, _F64, _F16, _BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
_LISTED = (
    ("encode", "mxfp8_e4m3", _F32, _F32, "bytes", "whole"),
    ("encode", "mxfp6_e3m2/even", _F32, _F32, "dense", "whole"),
    ("encode", "mxint8/ceil", _F32, _F32, "bytes", "whole"),
    ("encode", "nvfp4/tensor", _F32, _F32, "lo_first", "whole"),
    ("encode", "mxfp8_e4m3/rtz/rceil", _F32, _F32, "bytes", "whole"),
    ("encode", "mxfp4/torchao-0.18", _F32, _F32, "lo_first", "whole"),
    ("encode", "mxint8/microxcaling/rna", _F32, _F32, "bytes", "whole"),
    ("encode", "mxfp8_e4m3", _BF16, _BF16, "bytes", "whole"), ("encode", "mxfp4", _BF16, _BF16, "lo_first", "whole"),
    ("encode", "nvfp4", _BF16, _BF16, "lo_first", "whole"), ("encode", "mxfp8_e4m3", _F64, _F64, "bytes", "whole"),
    ("decode", "mxfp8_e4m3", _F32, _F32, "bytes", "whole"), ("decode", "mxfp8_e4m3", _BF16, _BF16, "bytes", "whole"),
    ("decode", "mxfp4", _BF16, _BF16, "lo_first", "whole"),
    ("decode", "nvfp4/tensor", _BF16, _BF16, "lo_first", "whole"),
    ("quantize", "mxfp8_e4m3", _F32, _F32, "bytes", "whole"), ("quantize", "mxfp4", _F16, _F16, "bytes", "whole"),
    ("encode", "mxfp8_e4m3", _BF16, _BF16, "bytes", "any"), ("decode", "mxfp4", _BF16, _BF16, "lo_first", "any"),
    ("quantize", "mxfp6_e3m2", _F32, _BF16, "bytes", "any"),
    ("encode", "mxfp8_e4m3", _BF16, _BF16, "bytes", "columns"),
    ("encode", "mxfp4", _BF16, _BF16, "lo_first", "columns"),
    ("encode", "nvfp4", _BF16, _BF16, "lo_first", "columns"),
    ("encode", "mxfp8_e4m3", _F32, _F32, "bytes", "columns"), ("encode", "mxint8", _F16, _F16, "bytes", "columns"),
)  # fmt: skip


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each path through cutlass_kernels/mx."""
    for op, name, src, dst, packing, layout in _LISTED:
        yield mx_source(op, parse_block(name), src, dst, packing, layout)
