"""Overrides of contractions (tensordot, inner, chains and powers of matrices), in PyTorch's order of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..autocast import autocast, promoted
from .matmul import FLOATS, nth, product
from .table import Site, overrides, packets

__all__: list[str] = []

_VF: Any = torch._C._VariableFunctions


def _dims(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]] | None:
    """The contracted dimensions of both operands, counted from 0; None for those that PyTorch refuses."""
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    if isinstance(dims, (int, torch.SymInt)):
        if dims < 0 or dims > min(a.dim(), b.dim()):
            return None
        dims = (range(-dims, 0), range(dims))
    if not isinstance(dims, (tuple, list)) or len(dims) != 2:
        return None
    found = []
    for t, chosen in zip((a, b), dims, strict=True):
        if any(not isinstance(d, (int, torch.SymInt)) or not -t.dim() <= d < t.dim() for d in chosen):
            return None
        counted = [d % t.dim() for d in chosen]
        if len(set(counted)) != len(counted):
            return None
        found.append(counted)
    return (found[0], found[1]) if len(found[0]) == len(found[1]) else None


def _tensordot(at: Site, a: Tensor, b: Tensor, dims_a: Sequence[int], dims_b: Sequence[int]) -> Any:
    """``torch.tensordot``.

    If one operand has size one in a dimension, the other is summed over it first. The rest is contracted in the given
    order.
    """
    size, left, right = 1, a, b
    for i, j in zip(dims_a, dims_b, strict=True):
        if b.shape[j] == 1:
            left = left.sum(i, True, dtype=left.dtype)
        elif a.shape[i] == 1:
            right = right.sum(j, True, dtype=right.dtype)
        elif a.shape[i] != b.shape[j]:
            return NotImplemented
        else:
            size = size * a.shape[i]
    kept_a = [i for i in range(a.dim()) if i not in dims_a]
    kept_b = [i for i in range(b.dim()) if i not in dims_b]
    shape = [a.shape[i] for i in kept_a] + [b.shape[i] for i in kept_b]
    m, n = _size(a, kept_a), _size(b, kept_b)
    if m == 1 and n == 1:  # PyTorch computes a dot product, or a sum of elementwise products if that would need copies
        left, right = left.permute([*kept_a, *dims_a]), right.permute([*dims_b, *kept_b])
        if not (left.is_contiguous() and right.is_contiguous()):
            kept = [left.shape[i] for i in range(len(kept_a), a.dim())]
            return (left.reshape(kept) * right.reshape(kept)).sum().reshape(shape)
        return product(at, left.reshape(size), right.reshape(size)).reshape(shape)
    rows, columns = left.permute([*kept_a, *dims_a]), right.permute([*dims_b, *kept_b])
    rows = rows.reshape(m, size)
    columns = columns.reshape(size, n)
    if a.device.type == "cpu":
        rows, columns = autocast(rows, columns)
    return product(at, rows, columns).reshape(shape)


def _size(t: Tensor, dims: Sequence[int]) -> int:
    size = 1
    for i in dims:
        size = size * t.shape[i]
    return size


def _are_ours(*tensors: Any) -> bool:
    first = tensors[0]
    return all(
        isinstance(t, Tensor) and t.dtype in FLOATS and t.dtype == first.dtype and t.device == first.device
        for t in tensors
    )


@overrides("tensordot", torch.tensordot, names=("a", "b", "dims"))
def _tensordot_of(at: Site, a: Tensor, b: Tensor, dims: Any = 2) -> Any:
    a, b = promoted(a, b)
    if not _are_ours(a, b):
        return NotImplemented
    read = _dims(a, b, dims)
    return NotImplemented if read is None else _tensordot(at, a, b, *read)


@overrides(
    "tensordot",
    *(_VF.tensordot, *packets("tensordot", "default")),
    names=("self|input", "other", "dims_self", "dims_other"),
)
def _tensordot_lists(at: Site, a: Tensor, b: Tensor, dims_self: Any, dims_other: Any) -> Any:
    return _tensordot_of(at, a, b, (list(dims_self), list(dims_other)))


@overrides("matmul", torch.inner, Tensor.inner, *packets("inner", "default"), names=("input|self", "other"))
def _inner(at: Site, a: Tensor, b: Tensor) -> Any:
    """A contraction over the last dimensions, as in ``tensordot``. With a scalar, PyTorch multiplies elementwise."""
    a, b = promoted(a, b)
    if not _are_ours(a, b) or a.dim() == 0 or b.dim() == 0 or a.shape[-1] != b.shape[-1]:
        return NotImplemented
    return _tensordot(at, a, b, [a.dim() - 1], [b.dim() - 1])


@overrides("matmul", torch.chain_matmul, _VF.chain_matmul, *packets("chain_matmul", "default"))
def _chain_matmul(at: Site, *matrices: Any) -> Any:
    if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)):
        matrices = tuple(matrices[0])
    if len(matrices) < 2 or any(m.dim() != 2 for m in matrices):
        return NotImplemented
    return _chain(at, list(matrices))


@overrides("matmul", torch.linalg.multi_dot, *packets("linalg_multi_dot", "default"), names=("tensors",))
def _multi_dot(at: Site, tensors: Sequence[Tensor]) -> Any:
    """A chain of matrices. The first may be a vector, which is a row, and the last may be one, which is a column."""
    matrices = list(tensors)
    if len(matrices) < 2:
        return NotImplemented
    row, column = matrices[0].dim() == 1, matrices[-1].dim() == 1
    if row:
        matrices[0] = matrices[0].unsqueeze(0)
    if column:
        matrices[-1] = matrices[-1].unsqueeze(-1)
    out = _chain(at, matrices)
    if out is NotImplemented:
        return out
    out = out.squeeze(-1) if column else out
    return out.squeeze(0) if row else out


def _chain(at: Site, matrices: list[Tensor]) -> Any:
    """The product of a chain of matrices in the order of the fewest multiplications."""
    matrices = list(autocast(*matrices))
    if not _are_ours(*matrices) or any(m.dim() != 2 for m in matrices):
        return NotImplemented
    if any(a.shape[1] != b.shape[0] for a, b in zip(matrices, matrices[1:], strict=False)):
        return NotImplemented
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    if len(matrices) == 3:  # PyTorch compares two orders here, and takes the first if they cost the same
        a, b, c, d = sizes
        later = a * c * (b + d) > b * d * (a + c)
        order = {(0, 2): 0 if later else 1, (1, 2): 1, (0, 1): 0}
    else:
        order = _order(sizes)
    found, _ = _multiplied(at, matrices, order, 0, len(matrices) - 1, 0)
    return found


def _order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each part of a chain of matrices (sizes[i], sizes[i + 1]): the first of the cheapest splits."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    order = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best = None
            for k in range(i, j):
                here = cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if best is None or here < best:
                    best, order[i, j] = here, k
            cost[i, j] = best or 0
    return order


def _multiplied(
    at: Site, matrices: list[Tensor], order: dict[tuple[int, int], int], i: int, j: int, n: int
) -> tuple[Tensor, int]:
    """The product of matrices i to j, and the number of products made so far."""
    if i == j:
        return matrices[i], n
    k = order[i, j]
    left, n = _multiplied(at, matrices, order, i, k, n)
    right, n = _multiplied(at, matrices, order, k + 1, j, n)
    return product(nth(at, n), left, right), n + 1


@overrides(
    "matmul",
    *(torch.matrix_power, Tensor.matrix_power, torch.linalg.matrix_power),
    *(*packets("matrix_power", "default"), *packets("linalg_matrix_power", "default")),
    names=("input|self|A", "n"),
)
def _matrix_power(at: Site, a: Tensor, n: int) -> Any:
    """Squares, and products with the result so far, from the lowest bit of n on. Inverses are native."""
    if a.dtype not in FLOATS or a.dim() < 2 or a.shape[-1] != a.shape[-2] or abs(n) < 2:
        return NotImplemented
    base = torch.linalg.inv(a) if n < 0 else a
    n = abs(n)
    if n == 3:
        return _squared(nth(at, 1), _squared(at, base, base), base)
    out, power, count = None, base, 0
    while True:
        if n % 2:
            if out is None:
                out = power
            else:
                out, count = _squared(nth(at, count), out, power), count + 1
        n //= 2
        if not n:
            return out
        power, count = _squared(nth(at, count), power, power), count + 1


def _squared(at: Site, a: Tensor, b: Tensor) -> Tensor:
    a, b = autocast(a, b)
    return product(at, a, b)
