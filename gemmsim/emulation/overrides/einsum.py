"""The override of einsum: PyTorch's order of operations, with one batched product for each pair of operands."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.lazy_dynamo import assume_constant_result

from ..autocast import autocast
from .matmul import multiplies, nth, product
from .table import Site, overrides, packets

__all__: list[str] = []

_ELLIPSIS = "."
_VF: Any = torch._C._VariableFunctions
#: The order in which PyTorch lists labels: capitals first.
_LABELS = ascii_letters[26:] + ascii_letters[:26]


@overrides("einsum", torch.einsum)
def _einsum(at: Site, *args: Any) -> Any:
    """``torch.einsum`` in both of its forms: an equation, or operands with lists of labels."""
    if isinstance(args[0], Tensor):
        parts = [_labels(sub) for sub in args[1::2]]
        if any(part is None for part in parts):
            return NotImplemented
        equation, operands = ",".join(parts), args[::2]  # type: ignore[arg-type]
        if len(args) % 2:
            last = _labels(args[-1])
            if last is None:
                return NotImplemented
            equation, operands = f"{equation}->{last}", args[:-1:2]
    else:
        equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    path = None
    optimizer = torch.backends.opt_einsum
    if len(operands) > 2 and optimizer.enabled and optimizer.is_available():
        shapes = ";".join(",".join(str(int(n)) for n in t.shape) for t in operands)
        path = _path(equation, shapes, optimizer.strategy or "auto")
    return _contracted(at, equation, operands, path)


@overrides(
    "einsum",
    *(_VF.einsum, *packets("einsum", "default")),
    names=("equation", "tensors|operands", "path"),
)
def _einsum_op(at: Site, equation: str, operands: Any, path: Any = None) -> Any:
    return _contracted(at, equation, tuple(operands), None if path is None else list(path))


def _labels(sub: Any) -> str | None:
    """Labels of one operand as letters, of which PyTorch numbers the capitals first; None for invalid labels."""
    if any(n is not Ellipsis and not 0 <= n < 52 for n in sub):
        return None
    return "".join("..." if n is Ellipsis else _LABELS[n] for n in sub)


@assume_constant_result
def _path(equation: str, shapes: str, strategy: str) -> list[int] | None:
    """The pairs that opt_einsum contracts, requested as PyTorch does it; None if it refuses the equation."""
    sizes = [tuple(int(n) for n in shape.split(",") if n) for shape in shapes.split(";")]
    optimizer = torch.backends.opt_einsum.get_opt_einsum()
    try:
        pairs = optimizer.contract_path(equation, *sizes, optimize=strategy, shapes=True)[0]
    except Exception:  # PyTorch makes the same request and raises the error for the user
        return None
    return [i for pair in pairs for i in pair]


def _split(equation: str) -> tuple[list[str], str | None] | None:
    """Labels of each operand and of the result (None: not given), "." for an ellipsis; None for an invalid equation."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    sides = [side.replace("...", _ELLIPSIS) for side in (*left.split(","), right)]
    if any(c != _ELLIPSIS and c not in _LABELS for side in sides for c in side):
        return None
    if any(side.count(_ELLIPSIS) > 1 for side in sides):
        return None
    return sides[:-1], sides[-1] if arrow else None


def _places(inputs: list[str], output: str | None, ellipsis: int) -> tuple[list[str], int] | None:
    """All dimensions in the order of PyTorch's aligned operands, and how many of them the result has.

    Ellipsis dimensions are called ".0", ".1" and so on. The value is None for an invalid result.
    """
    dots = [f".{i}" for i in range(ellipsis)]
    seen = "".join(inputs)
    if output is None:
        result = dots + [c for c in _LABELS if seen.count(c) == 1]
    else:
        if len(set(output)) != len(output) or any(c != _ELLIPSIS and c not in seen for c in output):
            return None
        result = [name for c in output for name in (dots if c == _ELLIPSIS else [c])]
    rest = [] if output is None or _ELLIPSIS in output else dots
    rest = rest + [c for c in _LABELS if c in seen and c not in result]
    return result + rest, len(result)


def _aligned(op: Tensor, labels: str, names: list[str], ellipsis: int) -> Tensor | None:
    """``op`` with the dimensions ``names`` in order.

    Dimensions that it lacks have size one, and repeated labels take the diagonal. The value is None if ``op`` does not
    fit.
    """
    covered = op.dim() - sum(c != _ELLIPSIS for c in labels)
    if covered < 0 or (covered and _ELLIPSIS not in labels):
        return None
    found: dict[str, int] = {}
    dim = 0
    for c in labels:
        for name in [f".{i}" for i in range(ellipsis - covered, ellipsis)] if c == _ELLIPSIS else [c]:
            if name not in found:
                found[name], dim = dim, dim + 1
                continue
            first = found[name]
            if op.shape[dim] != op.shape[first]:
                return None
            op = op.diagonal(0, first, dim).movedim(-1, first)
    for name in names:
        if name not in found:
            op = op.unsqueeze(dim)
            found[name], dim = dim, dim + 1
    return op.permute([found[name] for name in names])


def _contracted(at: Site, equation: str, operands: tuple[Any, ...], path: list[int] | None) -> Any:
    """The contraction of all operands, two at a time."""
    if len(operands) < 2 or not all(isinstance(t, Tensor) for t in operands):
        return NotImplemented
    if any(t.is_complex() or t.device != operands[0].device for t in operands) or not isinstance(equation, str):
        return NotImplemented
    if operands[0].device.type != "cpu":
        operands = autocast(*operands)
    read = _split(equation)
    if read is None or len(read[0]) != len(operands):
        return NotImplemented
    inputs, output = read
    letters = [sum(c != _ELLIPSIS for c in labels) for labels in inputs]
    spans = [t.dim() - n for t, n, labels in zip(operands, letters, inputs, strict=True) if _ELLIPSIS in labels]
    ellipsis = max([0, *spans])
    placed = _places(inputs, output, ellipsis)
    if placed is None:
        return NotImplemented
    names, results = placed
    ops: list[Any] = [_aligned(t, labels, names, ellipsis) for t, labels in zip(operands, inputs, strict=True)]
    if any(t is None for t in ops):
        return NotImplemented
    if not _sizes_agree(ops):
        return NotImplemented
    return _pairwise(at, ops, results, path)


def _sizes_agree(ops: list[Any]) -> bool:
    for i in range(ops[0].dim()):
        known = 1
        for t in ops:
            if t.shape[i] != 1:
                if known not in (1, t.shape[i]):
                    return False
                known = t.shape[i]
    return True


def _pairwise(at: Site, ops: list[Any], results: int, path: list[int] | None) -> Any:
    """Contracts operands of equal rank from left to right, or along ``path``.

    ``results``: number of dimensions that remain.
    """
    counts = [len([t for t in ops if t.shape[d] != 1]) for d in range(ops[0].dim())]
    if path is not None and len(path) != 2 * (len(ops) - 1):
        return NotImplemented
    for n in range(len(ops) - 1):
        i, j = (0, 1) if path is None else sorted(path[2 * n : 2 * n + 2])
        if i == j or not 0 <= i < j < len(ops):
            return NotImplemented
        b, a = ops.pop(j), ops.pop(i)
        both: list[int] = []
        only_a: list[int] = []
        only_b: list[int] = []
        for d in range(results, a.dim()):
            if a.shape[d] != 1 and b.shape[d] != 1:
                counts[d] -= 1
                if counts[d] == 1:
                    both.append(d)
                    counts[d] = 0
            elif counts[d] == 1 and (a.shape[d] != 1 or b.shape[d] != 1):
                (only_a if a.shape[d] != 1 else only_b).append(d)
                counts[d] = 0
        a = a.sum(only_a, True) if only_a else a
        b = b.sum(only_b, True) if only_b else b
        out = _pair(nth(at, n), a, b, both)
        if out is NotImplemented:
            return NotImplemented
        ops.insert(len(ops) if path is not None else 0, out)
    return ops[0].reshape(ops[0].shape[:results])


def _pair(at: Site, left: Tensor, right: Tensor, contracted: list[int]) -> Any:
    """Multiplies two operands of equal rank and sums over ``contracted``, in which both are larger than one.

    Dimensions that both have are the batch. If the result has the second operand's dimensions before the first's,
    PyTorch exchanges the operands.
    """
    if not contracted:
        return left * right
    rank = left.dim()
    free = [d for d in range(rank) if d not in contracted]
    batch = [d for d in free if left.shape[d] != 1 and right.shape[d] != 1]
    rows = [d for d in free if left.shape[d] != 1 and right.shape[d] == 1]
    columns = [d for d in free if left.shape[d] == 1]
    if rows and columns and columns[-1] < rows[0]:
        left, right, rows, columns = right, left, columns, rows
    order = [*batch, *rows, *contracted, *columns]
    shape = [left.shape[d] for d in (*batch, *rows)] + [1] * len(contracted) + [right.shape[d] for d in columns]
    sizes = [_size(left, batch), _size(left, rows), _size(left, contracted), _size(right, columns)]
    left = left.permute(*batch, *rows, *contracted, *columns).reshape(sizes[0], sizes[1], sizes[2])
    right = right.permute(*batch, *contracted, *columns, *rows).reshape(sizes[0], sizes[2], sizes[3])
    left, right = autocast(left, right)
    if not multiplies(left, right):
        return NotImplemented
    out = product(at, left, right)
    return out.reshape(shape).permute([order.index(d) for d in range(rank)])


def _size(t: Tensor, dims: list[int]) -> int:
    size = 1
    for d in dims:
        size = size * t.shape[d]
    return size
