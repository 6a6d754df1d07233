"""Products whose accumulator is a user's Python class: its steps in PyTorch, the orders around it, on any device.

Slow by nature, and nothing else computes these products. Sums of totals are rounded once, by this library's kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, Custom, GemmSpec, Sequential, UnsupportedSpec
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.custom import Swapped
from gemmsim.arithmetic.errors import SpecError
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.arithmetic.splitk import SplitK
from gemmsim.formats import FP64, Cast

from .convert import cast_into, cast_operand

__all__ = ["CustomRun", "gemm", "supported"]

_SITE_A, _SITE_B, _SITE_OUT = 0, 1, 4
_ORDERS = (Chunked, Promote, SplitK, Pairwise, Interleaved, Shuffled, Swapped)


class CustomRun:
    """Record of one product."""

    backend = "custom"
    __slots__ = ("_steps",)

    def __init__(self, steps: str) -> None:
        self._steps = steps

    def __str__(self) -> str:
        return f"{self._steps}, a step for each term in PyTorch"


def supported(spec: GemmSpec) -> str | None:
    """None, or why products of ``spec``, whose accumulator is custom, are not computed."""
    part = spec.accumulator
    while not isinstance(part, Custom):
        if not isinstance(part, _ORDERS):
            return f"{part.name}(...) around an accumulator of a user's own class"
        part = part.inner
    if any(cast.is_stochastic for cast in spec.accumulator.casts()):
        return "random rounding in an accumulator of a user's own class, or around it"
    return None


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int) -> CustomRun:
    """Write the product of (..., M, K) and (..., K, N) to ``out``.

    Raises:
        UnsupportedSpec: for an order, or a random rounding, that has no meaning here.
        SpecError: for a step that gives no tensors of the state's shape, or operands that its numbers do not hold.
    """
    reason = supported(spec)
    if reason is not None:
        raise UnsupportedSpec(
            f"{str(spec)!r}: {reason}; allowed: chunked, promote, splitk, pairwise, interleaved and shuffled, with "
            "deterministic roundings.\n  Put the other steps into the class."
        )
    left = cast_operand(a, spec.cast_a, torch.float64, seed, _SITE_A)
    right = cast_operand(b, spec.cast_b, torch.float64, seed, _SITE_B)
    total = _total(spec.accumulator, left, right)
    cast_into(total, spec.out, out, seed, _SITE_OUT)
    leaf = spec.accumulator
    while not isinstance(leaf, Custom):
        leaf = leaf.inner  # type: ignore[attr-defined]
    return CustomRun(f"{type(leaf).__qualname__}.step")


def _total(part: Accumulator, a: Tensor, b: Tensor) -> Tensor:
    """Result of ``part`` for these terms, float64."""
    k = a.shape[-1]
    if isinstance(part, Swapped):
        return _total(part.inner, b.mT, a.mT).mT
    if isinstance(part, Custom):
        return _run(part, a, b)
    if isinstance(part, Shuffled):
        order = torch.tensor(part.order(k), dtype=torch.int64, device=a.device)
        return _total(part.inner, a.index_select(-1, order), b.index_select(-2, order))
    inner: Accumulator = part.inner  # type: ignore[attr-defined]
    totals = (_total(inner, a[..., at], b[..., at, :]) for at in _runs(part, k))
    if isinstance(part, Pairwise) or (isinstance(part, Interleaved) and part.combine == "pairwise"):
        return _tree(list(totals), part.add_cast, a, b)
    cast = part.reduce if isinstance(part, SplitK) else part.add_cast
    total = _zeros(a, b)
    for run in totals:
        total = _sum(total, _rounded(run, cast) if isinstance(part, SplitK) else run, cast)
    return total


def _runs(part: Any, k: int) -> Iterator[slice]:
    """Terms of each run."""
    if isinstance(part, Interleaved):
        return (slice(lane, k, part.lanes) for lane in range(min(part.lanes, k)))
    size = part.leaf if isinstance(part, Pairwise) else part.n if not isinstance(part, SplitK) else -(-k // part.slices)
    return (slice(first, min(first + size, k)) for first in range(0, k, max(size, 1)))


def _zeros(a: Tensor, b: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return torch.zeros((*batch, a.shape[-2], b.shape[-1]), dtype=dtype, device=a.device)


def _tree(totals: list[Tensor], cast: Cast, a: Tensor, b: Tensor) -> Tensor:
    """Sums of adjacent pairs; an odd last one passes up."""
    while len(totals) > 1:
        pairs = [_sum(x, y, cast) for x, y in zip(totals[::2], totals[1::2], strict=False)]
        totals = pairs + totals[2 * len(pairs) :]
    return totals[0] if totals else _zeros(a, b)


def _rounded(x: Tensor, cast: Cast) -> Tensor:
    out = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    cast_into(x, cast, out, 0, 0)
    return out


def _sum(s: Tensor, t: Tensor, cast: Cast) -> Tensor:
    """``R(s + t)``, rounded once from the exact sum: one step of the sequential accumulator that starts from s."""
    out = torch.empty(s.numel(), 1, dtype=torch.float64, device=s.device)
    spec = GemmSpec(accumulator=Sequential(cast, init="c_first"))
    one = torch.ones(1, 1, dtype=torch.float64, device=s.device)
    if s.is_cuda:
        from . import cuda

        cuda.gemm(t.reshape(-1, 1), one, spec, out, 0, s.reshape(-1, 1))
    else:
        from . import cpu

        cpu.gemm(t.reshape(-1, 1), one, spec, out, 0, s.reshape(-1, 1))
    return out.view(s.shape)


def _run(one: Custom, a: Tensor, b: Tensor) -> Tensor:
    """The steps of ``one`` over all terms, its result rounded to its register."""
    dtype: torch.dtype = getattr(torch, one.numbers)
    a, b = (_in_numbers(one, x, dtype) for x in (a, b))
    zeros = _zeros(a, b, dtype)
    state: Any = one.start(zeros)
    for k in range(a.shape[-1]):
        state = one.step(state, a[..., :, k : k + 1], b[..., k : k + 1, :], k)
    result = one.finish(state)
    if not isinstance(result, Tensor) or result.shape != zeros.shape:
        found = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
        raise SpecError(
            f"{one}: step and finish gave {found}; allowed: a tensor of the output's shape {tuple(zeros.shape)}.\n"
            "  Return a state that depends on s, a and b by operations that broadcast."
        )
    wide = result.to(torch.float64)
    return wide if one.register is None else _rounded(wide, one.add_cast)


def _in_numbers(one: Custom, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 operands in the class' own dtype, which must hold them."""
    converted = torch.empty(x.shape, dtype=dtype, device=x.device)
    if dtype == torch.int64:
        if not bool(((x == x.trunc()) & (x.abs() < 2.0**63)).all()):
            raise SpecError(
                f"{one} of operands that are not integers; allowed: integers, since its numbers are int64.\n"
                "  Give operand formats such as int8, or numbers = 'float64' in the class."
            )
        return x.to(dtype)
    cast_into(x, Cast(FP64), converted, 0, 0)
    return converted
