"""Single steps of row operations inside autograd functions: quantisers, rounded functions, sums over broadcast dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..checks import check_ints
from ..dispatch import is_direct, needs_autograd, unobserved
from ..errors import ShapeError, message
from ..product.affine_plan import Step
from ..product.operators import quantize_op
from ..seeds import Bits
from .operators import row_map_op, row_sum_op

__all__ = ["applied", "cast_text", "finish", "map_step", "normal_dims", "quantized", "sum_step", "sum_to"]

_NATIVE: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "sqrt": torch.sqrt,
    "pow": torch.pow,
}


@lru_cache(maxsize=64)
def _direct_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    found: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return found


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply(*arguments)``, without what it does for functorch where nothing needs it: half of a call on a
    few rows. Without gradients, ``function.forward``."""
    if not unobserved():
        return function.apply(*arguments)
    tensors = [t for t in arguments if isinstance(t, Tensor)]
    if not all(map(is_direct, tensors)):
        return function.apply(*arguments)
    return _direct_apply(function)(*arguments) if needs_autograd(*tensors) else function.forward(*arguments)


def quantized(x: Tensor, step: Step, bits: Bits, stream: int) -> Tensor:
    """``x`` through a quantiser: a cast, a function, or nothing."""
    if step is None:
        return x
    if isinstance(step, str):
        result: Tensor = quantize_op(x, step, bits.seed, 16, int(stream), False, bits.counter)
        return result
    return step(x)


def cast_text(step: Step) -> str:
    """The cast that a last step rounds to: that of a quantiser that is a cast, else the carrier's."""
    return step if isinstance(step, str) else ""


def finish(x: Tensor, step: Step) -> Tensor:
    """What remains of a quantiser that ``cast_text`` gave to the last step: a function."""
    return step(x) if step is not None and not isinstance(step, str) else x


def map_step(function: str, a: Tensor, b: Tensor | None, step: Step, bits: Bits, stream: int) -> Tensor:
    """``step(function(a, b))``, rounded once where step is a cast; without one, to the operands' dtype."""
    if isinstance(step, str) or function not in _NATIVE:
        text = step if isinstance(step, str) else ""
        return finish(row_map_op(a, b, function, text, bits.seed, int(stream), bits.counter), step)
    native = _NATIVE[function]
    return finish(native(a) if b is None else native(a, b), step)


def sum_step(x: Tensor, dims: Sequence[int], step: Step, order: int, bits: Bits, stream: int) -> Tensor:
    """Sums over ``dims``, one after the other in this order, each kept with size one."""
    for dim in dims:
        if step is None:
            x = x.sum(dim, keepdim=True)
        elif isinstance(step, str):
            x = row_sum_op(x.movedim(dim, -1), step, order, bits.seed, stream, bits.counter).unsqueeze(dim)
        else:
            x = _sum_by_function(x, dim, step)
        stream += 1
    return x


def _sum_by_function(x: Tensor, dim: int, step: Callable[[Tensor], Tensor]) -> Tensor:
    total = torch.zeros_like(x.narrow(dim, 0, 1) if x.shape[dim] else x.sum(dim, keepdim=True))
    for k in range(x.shape[dim]):
        total = step(total + x.narrow(dim, k, 1))
    return total


def sum_to(g: Tensor, shape: Sequence[int], step: Step, bits: Bits, stream: int) -> Tensor:
    """``g`` summed over the dimensions along which an operand of ``shape`` was broadcast, as one sum, last fastest."""
    missing = g.dim() - len(shape)
    reduced = [i for i in range(g.dim()) if i < missing or (shape[i - missing] == 1 and g.shape[i] != 1)]
    if not reduced:
        return g
    kept = [i for i in range(g.dim()) if i not in reduced]
    terms = g.permute(*kept, *reduced).flatten(len(kept))
    return sum_step(terms, [terms.dim() - 1], step, 1, bits, stream).reshape(tuple(shape))


def normal_dims(owner: str, dim: int | Sequence[int] | None, rank: int) -> list[int]:
    """``dim`` as non-negative dimensions in the order given, all of them for None or ().

    ``IndexError`` for dimensions out of range (as torch), ``ShapeError`` for one given twice, ``DTypeError`` for what
    is no integer.
    """
    dims: Any = range(rank) if dim is None else dim
    given = list(dims) if isinstance(dims, (range, tuple, list)) else [dims]
    given = given or list(range(rank))
    for d in given:
        check_ints(owner, dim=d)
        if not -max(rank, 1) <= d < max(rank, 1):
            allowed = f"from {-rank} to {rank - 1}"
            raise IndexError(message(f"{owner}: dim={dim} of a tensor of {rank} dimensions", allowed, "Correct dim."))
    result = [d % rank if rank else 0 for d in given]
    if len(set(result)) != len(result):
        raise ShapeError(message(f"{owner}: dim={dim}", "each dimension once", "Remove the repeated one."))
    return result if rank else []
