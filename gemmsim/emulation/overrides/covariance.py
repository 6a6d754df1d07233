"""Overrides of ``cov`` and ``corrcoef``: PyTorch's steps, one of which is a product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..autocast import autocast
from .matmul import FLOATS, product
from .table import Site, overrides, packets

__all__: list[str] = []


@overrides("matmul", torch.cov, Tensor.cov, *packets("cov"), names=("input|self",))
def _cov(
    at: Site, x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Any:
    """Covariance of the variables in rows. ``fweights`` count the observations, ``aweights`` weigh them."""
    rows = x.reshape(1, -1) if x.dim() < 2 else x
    weights = [w for w in (fweights, aweights) if w is not None]
    if x.dtype not in FLOATS or rows.dim() != 2 or rows.shape[1] == 0:
        return NotImplemented
    if any(w.dim() > 1 or w.numel() != rows.shape[1] or w.device != x.device for w in weights):
        return NotImplemented
    if fweights is not None and (fweights.is_floating_point() or bool((fweights < 0).any())):
        return NotImplemented
    if aweights is not None and (not aweights.is_floating_point() or bool((aweights < 0).any())):
        return NotImplemented
    return _covariance(at, rows, correction, weights, aweights)


def _covariance(at: Site, rows: Tensor, correction: int, weights: list[Tensor], aweights: Tensor | None) -> Tensor:
    w = None if not weights else weights[0] if len(weights) == 1 else weights[0] * weights[1]
    total = torch.tensor(rows.shape[1], dtype=torch.long, device=rows.device) if w is None else w.sum()
    average = (rows if w is None else rows * w).sum(1) / total
    norm = total - correction
    if w is not None and aweights is not None and correction != 0:
        norm = total - correction * (w * aweights).sum() / total
    centred = rows - average.unsqueeze(1)
    left, right = autocast(centred, centred if w is None else centred * w)
    return torch.true_divide(product(at, left, right.mT), norm).squeeze()


@overrides("matmul", torch.corrcoef, Tensor.corrcoef, *packets("corrcoef"), names=("input|self",))
def _corrcoef(at: Site, x: Tensor) -> Any:
    c = _cov(at, x)
    if c is NotImplemented:
        return NotImplemented
    if c.dim() == 0:
        return c / c
    deviation = c.diag().sqrt()
    return (c / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clip(-1, 1)
