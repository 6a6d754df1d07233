"""Shape rules of a matrix product, those of ``torch.matmul``, and the index maps of its gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import check_same_inner
from ..errors import ShapeError, message

__all__ = [
    "broadcast_dims",
    "contract_columns",
    "contract_rows",
    "matmul_shape",
    "pad_rank",
    "sum_leading_view",
]


def matmul_shape(owner: str, a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Shape of ``a @ b`` for operands of rank two or more: batch dimensions broadcast, then (M, N).

    ``ShapeError``, with both shapes, when the contracted sizes differ or the batch dimensions do not broadcast.
    """
    if a.dim() < 2 or b.dim() < 2:
        raise ShapeError(
            message(
                f"{owner}: shapes {tuple(a.shape)} and {tuple(b.shape)}",
                "matrices or batches of matrices",
                "Use gemmsim.qmatmul for vectors; a 0-dimensional tensor has no matrix product.",
            )
        )
    check_same_inner(owner, a, b)
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    if len(batch_b) == 0 or batch_a == batch_b:
        batch: Sequence[int] = batch_a
    else:
        try:
            batch = torch.broadcast_shapes(batch_a, batch_b)
        except RuntimeError:
            raise ShapeError(
                message(
                    f"{owner}: shapes {tuple(a.shape)} and {tuple(b.shape)}",
                    "batch dimensions that broadcast: equal, 1 or missing, counted from the right",
                    f"The batch dimensions are {tuple(batch_a)} and {tuple(batch_b)}; unsqueeze or expand one of them.",
                )
            ) from None
    return (*batch, a.shape[-2], b.shape[-1])


def pad_rank(t: Tensor, rank: int) -> Tensor:
    """``t`` with dimensions of size one put in front until it has ``rank`` dimensions."""
    missing = rank - t.dim()
    return t.reshape((1,) * missing + tuple(t.shape)) if missing > 0 else t


def _size(t: Tensor, dims: list[int]) -> int:
    """Number of elements along ``dims`` (a loop, because a tracer does not follow ``math.prod`` of a generator)."""
    size = 1
    for i in dims:
        size = size * t.shape[i]
    return size


def broadcast_dims(batch: Sequence[int], operand: Sequence[int]) -> list[int]:
    """Indices into ``batch`` along which an operand with batch dimensions ``operand`` is repeated.

    A dimension of size one in both is no repetition. These dimensions are summed over in the operand's gradient.
    """
    missing = len(batch) - len(operand)
    return [i for i, size in enumerate(batch) if i < missing or (operand[i - missing] == 1 and size != 1)]


def contract_columns(t: Tensor, reduced: list[int]) -> Tensor:
    """(*batch, R, C) as (*kept, R, reduced... x C): the batch dimensions ``reduced`` join the last one, C fastest."""
    if not reduced:
        return t
    batch = t.dim() - 2
    kept = [i for i in range(batch) if i not in reduced]
    moved = t.permute(*kept, batch, *reduced, batch + 1)
    return moved.reshape([t.shape[i] for i in kept] + [t.shape[-2], _size(t, reduced) * t.shape[-1]])


def contract_rows(t: Tensor, reduced: list[int]) -> Tensor:
    """(*batch, R, C) as (*kept, reduced... x R, C): the batch dimensions ``reduced`` join the rows, R fastest."""
    if not reduced:
        return t
    batch = t.dim() - 2
    kept = [i for i in range(batch) if i not in reduced]
    moved = t.permute(*kept, *reduced, batch, batch + 1)
    return moved.reshape([t.shape[i] for i in kept] + [_size(t, reduced) * t.shape[-2], t.shape[-1]])


def sum_leading_view(t: Tensor, shape: Sequence[int]) -> Tensor:
    """``t`` as a matrix (terms, elements): summing its rows in order gives the gradient of an addend of ``shape``.

    The dimensions along which ``shape`` broadcasts to ``t.shape`` become the rows, the last of them fastest.
    """
    missing = t.dim() - len(shape)
    reduced = [i for i in range(t.dim()) if i < missing or (shape[i - missing] == 1 and t.shape[i] != 1)]
    kept = [i for i in range(t.dim()) if i not in reduced]
    moved = t.permute(*reduced, *kept)
    return moved.reshape(_size(t, reduced), _size(t, kept))
