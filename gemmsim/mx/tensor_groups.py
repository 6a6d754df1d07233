"""Grouped products of block-format tensors: a matrix for each group of rows, columns or terms (mixtures of experts)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.errors import DTypeError, ShapeError, message

from .dispatch import implements
from .errors import MXOperatorError
from .tensor import MXTensor
from .tensor_products import mm

aten = torch.ops.aten


@implements(aten._grouped_mm.default)
def grouped_mm(
    a: Any, b: Any, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """``torch.nn.functional.grouped_mm`` of ``MXTensor``s: each group's product is ``a @ b`` of its parts.

    a (M, K), b (G, K, N): rows up to ``offs[0]``, then up to ``offs[1]``, ... times a matrix each, the rest zeros.
    a (G, M, K), b (K, N): columns in groups. a (M, K), b (K, N): terms in groups, (G, M, N), cut at whole blocks.
    a (G, M, K), b (G, K, N): ``torch.bmm``, without ``offs``. A plain ``a`` is encoded as in ``a @ b``.

    Raises:
        MXOperatorError: for a bias, and plain operands as in ``a @ b``.
        ShapeError, DTypeError: for offsets that do not ascend, are missing or too many, or are no int32 vector.
    """
    if bias is not None:
        raise MXOperatorError(message("grouped_mm of MXTensors with a bias", "no bias", "Add it to the result."))
    ranks = a.dim(), b.dim()
    if any(rank not in (2, 3) for rank in ranks):
        raise ShapeError(message(f"grouped_mm of {ranks[0]} and {ranks[1]} dimensions", "2 or 3", "Reshape."))
    if ranks == (3, 3):
        if offs is not None:
            raise ShapeError(message("grouped_mm of two batches with offs", "no offs", "Leave it out."))
        return _as(mm(a, b), out_dtype)
    count = a.shape[0] if ranks[0] == 3 else b.shape[0] if ranks[1] == 3 else None
    total = {(2, 3): a.shape[0], (3, 2): b.shape[-1], (2, 2): a.shape[-1]}[ranks]
    ends = _ends(offs, count, total)
    starts = [0, *ends[:-1]]
    parts = list(zip(starts, ends, strict=True))
    if ranks == (2, 3):
        found = [mm(a.narrow(0, first, last - first), b.select(0, g)) for g, (first, last) in enumerate(parts)]
        return _as(_filled(found, 0, (total, b.shape[-1]), a, b), out_dtype)
    if ranks == (3, 2):
        found = [mm(a.select(0, g), b.narrow(1, first, last - first)) for g, (first, last) in enumerate(parts)]
        return _as(_filled(found, 1, (a.shape[1], total), a, b), out_dtype)
    found = [mm(a.narrow(1, i, j - i), b.narrow(0, i, j - i)) for i, j in parts]
    return _as(torch.stack(found), out_dtype)


def _as(found: Tensor, dtype: torch.dtype | None) -> Tensor:
    return found if dtype is None else found.to(dtype)


def _filled(found: list[Tensor], dim: int, shape: tuple[int, int], a: Tensor, b: Tensor) -> Tensor:
    """The groups' results side by side, zeros behind the last."""
    out = torch.zeros(shape, dtype=torch.promote_types(a.dtype, b.dtype), device=b.device)
    if found:
        joined = torch.cat(found, dim)
        out.narrow(dim, 0, joined.shape[dim]).copy_(joined)
    return out


def _ends(offs: Tensor | None, count: int | None, total: int) -> list[int]:
    """Where groups end: ``offs``, checked."""
    if offs is None:
        do = "Pass offs, where each group ends."
        raise ShapeError(message("grouped_mm of a matrix without offs", "offs with one number per group", do))
    if isinstance(offs, MXTensor) or offs.dtype != torch.int32:
        raise DTypeError(message(f"grouped_mm: offs of {offs.dtype}", "int32", "Use offs.int()."))
    if offs.dim() != 1 or (count is not None and offs.shape[0] != count):
        allowed = "one dimension" if count is None else f"shape ({count},)"
        raise ShapeError(message(f"grouped_mm: offs of shape {tuple(offs.shape)}", allowed, "Give one per group."))
    ends: list[int] = offs.tolist()
    if sorted([0, *ends, total]) != [0, *ends, total]:
        raise ShapeError(message(f"grouped_mm: offs {ends} of {total}", f"ascending, 0 to {total}", "Use cumsum."))
    return ends
