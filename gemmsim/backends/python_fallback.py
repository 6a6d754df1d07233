"""The Python fallback: computes a product step by step in PyTorch, on any device, where no kernel can.

This is for an accumulator that is a user's Python class (``Custom``), and for a register that is a list of values
(``CodebookFormat``). This library's kernels compute the sums. They round a sum once; or to odd in float64, from which
the value of the list is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, Custom, Exact, GemmSpec, Sequential, UnsupportedSpec
from gemmsim.arithmetic.chunked import Chunked, Promote
from gemmsim.arithmetic.custom import Swapped
from gemmsim.arithmetic.errors import SpecError
from gemmsim.arithmetic.interleaved import Interleaved
from gemmsim.arithmetic.pairwise import Pairwise
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.arithmetic.splitk import SplitK
from gemmsim.formats import FP64, Cast, parse_cast
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal
from gemmsim.lowering.schedule import is_scheduled

from .backend import backend_of
from .codebook import is_codebook
from .convert import cast_into, cast_operand
from .product import Ran

__all__ = ["gemm", "refuses"]

#: Round to odd in float64. A further rounding to any list of values then equals rounding the exact sum.
_TO_ODD = parse_cast("fp64/ro")
_ORDERS = (Chunked, Promote, SplitK, Pairwise, Interleaved, Shuffled, Swapped)


def refuses(spec: GemmSpec) -> Refusal | None:
    """Return why products of ``spec``, which ``needs_steps``, are not computed, or ``None``."""
    part = leaf(spec.accumulator)
    if not isinstance(part, (Custom, Sequential, Exact)) and _needs_steps(part):
        what = "a user-defined class" if part.is_custom else "a list of values"
        return Refusal(f"{part.name}(...) with {what}")
    order = next((one for one in _orders(spec.accumulator) if is_scheduled(one)), None)
    if order is not None:
        return Refusal(f"{order} around an accumulator that is computed step by step")
    if isinstance(part, Sequential) and part.init != "zero":
        return Refusal("an addend C with an accumulator format that is a list of values")
    if any(cast.is_stochastic for cast in spec.accumulator.casts()):
        return Refusal("random rounding in an accumulator that is computed step by step")
    if spec.arithmetic != "exact":
        return Refusal(f"arithmetic={spec.arithmetic!r} with an accumulator format that is a list of values")
    return None


def _orders(part: Accumulator) -> Iterator[Accumulator]:
    """Return the orders around the innermost accumulator."""
    while isinstance(part, _ORDERS):
        yield part
        part = part.inner


def leaf(part: Accumulator) -> Accumulator:
    """Return the innermost accumulator, around which the orders of summation are nested."""
    while isinstance(part, _ORDERS):
        part = part.inner
    return part


def _needs_steps(part: Accumulator) -> bool:
    return part.is_custom or any(is_codebook(cast) for cast in part.casts())


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int) -> Ran:
    """Write the product of (..., M, K) and (..., K, N) to ``out``; operands are cast already.

    Raises:
        UnsupportedSpec: for an order, or a random rounding, that has no meaning here.
        SpecError: for a step that gives no tensors of the state's shape, or operands that its numbers do not hold.
    """
    refusal = refuses(spec)
    if refusal is not None:
        raise UnsupportedSpec(
            f"{str(spec)!r}: {refusal}; allowed: chunked, promote, splitk, pairwise, interleaved and shuffled around "
            "one register, with deterministic roundings.\n  Put the other steps into a class of your own "
            "(docs/howto/extend.md)."
        )
    left, right = (cast_operand(x, None, torch.float64, 0, 0) for x in (a, b))
    total = _total(spec.accumulator, left, right)
    cast_into(total, spec.out, out, seed, Site.OUTPUT)
    own = leaf(spec.accumulator)
    steps = f"{type(own).__qualname__}.step" if isinstance(own, Custom) else str(own)
    return Ran("stepwise", f"{steps}, one PyTorch step per term")


def _total(part: Accumulator, a: Tensor, b: Tensor) -> Tensor:
    """Return the result of ``part`` for these terms, float64."""
    k = a.shape[-1]
    if isinstance(part, Swapped):
        return _total(part.inner, b.mT, a.mT).mT
    if isinstance(part, Custom):
        return _run(part, a, b)
    if isinstance(part, Sequential) and _needs_steps(part):
        return _listed(part, a, b)
    if isinstance(part, Exact) and is_codebook(part.out):
        return _rounded(_total(Exact(_TO_ODD), a, b), part.out)
    if not _needs_steps(part):
        total = _zeros(a, b)
        _gemm(*_batched(a, b), GemmSpec(accumulator=part), total)
        return total
    if isinstance(part, Shuffled):
        order = torch.tensor(part.order(k), dtype=torch.int64, device=a.device)
        return _total(part.inner, a.index_select(-1, order), b.index_select(-2, order))
    inner: Accumulator = part.inner  # type: ignore[attr-defined]
    totals = (_total(inner, a[..., at], b[..., at, :]) for at in _runs(part, k))
    if isinstance(part, Pairwise) or (isinstance(part, Interleaved) and part.combine == "pairwise"):
        return _tree(list(totals), part.add_cast, a, b)
    cast = part.add_cast
    total = _zeros(a, b)
    for run in totals:
        total = _sum(total, _rounded(run, cast) if isinstance(part, SplitK) else run, cast)
    return total


def _runs(part: Any, k: int) -> Iterator[slice]:
    """Return the terms of each segment as slices."""
    if isinstance(part, Interleaved):
        return (slice(lane, k, part.lanes) for lane in range(min(part.lanes, k)))
    size = part.leaf if isinstance(part, Pairwise) else part.length(k) if isinstance(part, SplitK) else part.n
    return (slice(first, min(first + size, k)) for first in range(0, k, max(size, 1)))


def _zeros(a: Tensor, b: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return torch.zeros((*batch, a.shape[-2], b.shape[-1]), dtype=dtype, device=a.device)


def _tree(totals: list[Tensor], cast: Cast, a: Tensor, b: Tensor) -> Tensor:
    """Add adjacent pairs, level by level; a last one without a partner goes to the next level unchanged."""
    while len(totals) > 1:
        pairs = [_sum(x, y, cast) for x, y in zip(totals[::2], totals[1::2], strict=False)]
        totals = pairs + totals[2 * len(pairs) :]
    return totals[0] if totals else _zeros(a, b)


def _rounded(x: Tensor, cast: Cast) -> Tensor:
    out = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    cast_into(x, cast, out, 0, 0)
    return out


def _sum(s: Tensor, t: Tensor, cast: Cast) -> Tensor:
    """Return ``R(s + t)``, rounded once from the exact sum."""
    one = torch.ones(1, 1, dtype=torch.float64, device=s.device)
    return _step(t.reshape(-1, 1), one, s.reshape(-1, 1), cast).view(s.shape)


def _step(a: Tensor, b: Tensor, s: Tensor, cast: Cast, mul: Cast | None = None) -> Tensor:
    """Return ``R(s + R_mul(a * b))`` for (..., M, 1) and (..., 1, N): a step of the sequential accumulator from s."""
    out = torch.empty(s.shape, dtype=torch.float64, device=s.device)
    add = _TO_ODD if is_codebook(cast) else cast
    _gemm(a, b, GemmSpec(accumulator=Sequential(add, mul, init="c_first")), out, s)
    return _rounded(out, cast) if is_codebook(cast) else out


def _gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, c: Tensor | None = None) -> None:
    backend_of(a).gemm(a, b, spec, out, 0, c)


def _batched(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def _listed(part: Sequential, a: Tensor, b: Tensor) -> Tensor:
    """Compute the steps of a register, or of products, in a list of values."""
    a, b = _batched(a, b)
    state = _zeros(a, b)
    for k in range(a.shape[-1]):
        left, right = a[..., k : k + 1], b[..., k : k + 1, :]
        if part.mul is not None and is_codebook(part.mul):
            state = _sum(state, _step(left, right, torch.zeros_like(state), part.mul), part.add)
        else:
            state = _step(left, right, state, part.add, part.mul)
    return state


def _run(one: Custom, a: Tensor, b: Tensor) -> Tensor:
    """Compute the steps of ``one`` over all terms, and round the result to its register."""
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
    """Return float64 operands in the class' own dtype, which must represent them."""
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
