"""Prepares batched products for backends, which take equal batch dimensions or none."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import Cast
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, Site

from .convert import cast_into
from .dtypes import carrier_dtype
from .product import Product

__all__ = ["batched"]


def batched(product: Product) -> Product:
    """Return ``product`` with equal batch dimensions in place of those that broadcast.

    The result has no batch dimensions where b is one matrix and the other tensors can be flattened without a copy.
    """
    a, b, out = product.a, product.b, product.out
    assert isinstance(a, Tensor) and isinstance(b, Tensor)
    spec = product.spec
    if spec.is_stochastic:
        spec, a, b = _cast_stochastic_operands(spec, a, b, product.seed)
    a, b, out, c, select = _together(a, b, out, product.c, product.select)
    more = (product.finish, product.named, None, product.count, product.row)
    return Product(a, b, spec, out, product.seed, c, select, *more)


def _cast_stochastic_operands(spec: GemmSpec, a: Tensor, b: Tensor, seed: int) -> tuple[GemmSpec, Tensor, Tensor]:
    """Apply stochastic operand casts now, so that an element's random bits depend on its index in its own tensor.

    In a batched GEMM a broadcast operand has lost that index.
    """
    if spec.cast_a is not None and spec.cast_a.is_stochastic:
        a, spec = _cast(a, spec.cast_a, seed, Site.OPERAND_A), replace(spec, a=None)
    if spec.cast_b is not None and spec.cast_b.is_stochastic:
        b, spec = _cast(b, spec.cast_b, seed, Site.OPERAND_B), replace(spec, b=None)
    return spec, a, b


def _cast(x: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    rounded = torch.empty_like(x, dtype=carrier_dtype(cast.format, x.dtype))
    cast_into(x, cast, rounded, seed, site)
    return rounded


def _together(
    a: Tensor, b: Tensor, out: Tensor, c: Tensor | None, select: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    if b.numel() == b.shape[-2] * b.shape[-1]:
        rows, n = out.numel() // out.shape[-1], out.shape[-1]
        flat_a = _flat_view(a.expand(*out.shape[:-1], a.shape[-1]), rows)
        flat_c, flat_select = (None if t is None else _flat_view(t, rows) for t in (c, select))
        if flat_a is not None and (c is None) is (flat_c is None) and (select is None) is (flat_select is None):
            return flat_a, b.reshape(b.shape[-2], n), out.view(rows, n), flat_c, flat_select
    batch = out.shape[:-2]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    if len(batch) <= MAX_BATCH_DIMS:
        return a, b, out, c, select
    a, b, out = (t.reshape(-1, *t.shape[-2:]) for t in (a, b, out))
    c, select = (None if t is None else t.reshape(out.shape) for t in (c, select))
    return a, b, out, c, select


def _flat_view(t: Tensor, rows: int) -> Tensor | None:
    """Return ``t`` as (rows, last) if that needs no copy, else None."""
    try:
        return t.view(rows, t.shape[-1])
    except RuntimeError:
        return None
