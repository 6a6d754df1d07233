"""``torch.ops.gemmsim.mx_*``: the conversions as operators with fake kernels, for ``torch.compile``.

They take formats as strings and the tensor's own scale as a tensor. They have no gradient.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gemmsim.backends.backend import backend_name, backend_of
from gemmsim.formats import BlockFormat
from gemmsim.ops import last_run
from gemmsim.ops.checks import check_float, check_out_dtype
from gemmsim.ops.registration import define

from . import batching
from .arguments import block_of, check_codes, code_shape, scale_shape

__all__ = ["decode_into_op", "decode_op", "encode_into_op", "encode_op", "quantize_into_op", "quantize_op"]


def _encode_into(
    x: Tensor, format: str, dim: int, packing: str, tensor_scale: Tensor | None, codes: Tensor, scales: Tensor
) -> None:
    fmt = block_of(format)
    if codes.numel():
        backend_of(x).encode_blocks(x, fmt, codes, scales, dim, packing, tensor_scale)
    _record("mx_encode", fmt, x)


def _encode(
    x: Tensor, format: str, dim: int, packing: str, tensor_scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    codes, scales = _encode_fake(x, format, dim, packing, tensor_scale)
    _encode_into(x, format, dim, packing, tensor_scale, codes, scales)
    return codes, scales


def _decode_into(
    codes: Tensor, scales: Tensor, format: str, dim: int, packing: str, tensor_scale: Tensor | None, out: Tensor
) -> None:
    fmt = block_of(format)
    if out.numel():
        backend_of(out).decode_blocks(codes, scales, fmt, out, dim, packing, tensor_scale)
    _record("mx_decode", fmt, out)


def _decode(
    codes: Tensor,
    scales: Tensor,
    format: str,
    dim: int,
    size: int,
    packing: str,
    dtype: torch.dtype,
    tensor_scale: Tensor | None = None,
) -> Tensor:
    out = _decode_fake(codes, scales, format, dim, size, packing, dtype, tensor_scale)
    _decode_into(codes, scales, format, dim, packing, tensor_scale, out)
    return out


def _quantize_into(x: Tensor, format: str, dim: int, tensor_scale: Tensor | None, out: Tensor) -> None:
    fmt = block_of(format)
    if out.numel():
        backend_of(x).quantize_blocks(x, fmt, out, dim, tensor_scale)
    _record("mx_fake_quantize", fmt, x)


def _quantize(
    x: Tensor, format: str, dim: int, dtype: torch.dtype | None = None, tensor_scale: Tensor | None = None
) -> Tensor:
    out = _quantize_fake(x, format, dim, dtype, tensor_scale)
    _quantize_into(x, format, dim, tensor_scale, out)
    return out


def _record(operator: str, fmt: BlockFormat, x: Tensor) -> None:
    last_run.record(operator, backend_name(x), str(fmt), f"{x.numel()} elements {x.dtype}")


def _encode_fake(
    x: Tensor, format: str, dim: int, packing: str, tensor_scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    fmt = block_of(format)
    check_float("mx.encode", "x", x)
    codes = x.new_empty(code_shape(x.shape, dim, packing), dtype=torch.uint8)
    return codes, x.new_empty(scale_shape(x.shape, dim, fmt.block_size), dtype=torch.uint8)


def _decode_fake(
    codes: Tensor,
    scales: Tensor,
    format: str,
    dim: int,
    size: int,
    packing: str,
    dtype: torch.dtype,
    tensor_scale: Tensor | None = None,
) -> Tensor:
    check_codes("mx.decode", "codes", codes)
    check_codes("mx.decode", "scales", scales)
    check_out_dtype("mx.decode", dtype)
    return codes.new_empty([*codes.shape[:dim], size, *codes.shape[dim + 1 :]], dtype=dtype)


def _quantize_fake(
    x: Tensor, format: str, dim: int, dtype: torch.dtype | None = None, tensor_scale: Tensor | None = None
) -> Tensor:
    block_of(format)
    check_float("mx.quantize", "x", x)
    return torch.empty_like(x, dtype=x.dtype if dtype is None else dtype)


_define = partial(define, tags=(torch.Tag.needs_exact_strides,))
encode_op = _define(
    "mx_encode(Tensor x, str format, int dim, str packing, Tensor? tensor_scale=None) -> (Tensor, Tensor)",
    _encode,
    _encode_fake,
    vmap=batching.encode,
)
encode_into_op = _define(
    "mx_encode_into(Tensor x, str format, int dim, str packing, Tensor? tensor_scale, Tensor(a!) codes,"
    " Tensor(b!) scales) -> ()",
    _encode_into,
)
decode_op = _define(
    "mx_decode(Tensor codes, Tensor scales, str format, int dim, SymInt size, str packing, ScalarType dtype,"
    " Tensor? tensor_scale=None) -> Tensor",
    _decode,
    _decode_fake,
    vmap=batching.decode,
)
decode_into_op = _define(
    "mx_decode_into(Tensor codes, Tensor scales, str format, int dim, str packing, Tensor? tensor_scale,"
    " Tensor(a!) out) -> ()",
    _decode_into,
)
quantize_op = _define(
    "mx_fake_quantize(Tensor x, str format, int dim, ScalarType? dtype=None, Tensor? tensor_scale=None) -> Tensor",
    _quantize,
    _quantize_fake,
    vmap=batching.quantize,
)
quantize_into_op = _define(
    "mx_fake_quantize_into(Tensor x, str format, int dim, Tensor? tensor_scale, Tensor(a!) out) -> ()",
    _quantize_into,
)
