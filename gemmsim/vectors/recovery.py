"""Operands that drive an accumulator out of its range and then back by more than the excess.

They tell an accumulator that is limited at every step from one that stays at its limit, and from a wider one that is
limited only when it is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import gemmsim as gs

from .levels import Level, levels_of
from .operands import Numbers

__all__ = ["recovery"]

#: Sizes of one step that are tried, as parts of the accumulator's range, and halvings of the largest size.
_PARTS, _HALVINGS = (0.75, 0.4, 0.2, 0.1), 8


def recovery(a: Numbers, b: Numbers, terms: int, spec: gs.GemmSpec) -> tuple[str, Tensor | None, Tensor | None]:
    """Description, a and b; without a and b, the reason why there are none."""
    if spec.accumulator.is_stochastic:
        return "none: sums are rounded at random", None, None
    side = 1 if b.least < 0 else 0
    turning, constant = (b, a) if side else (a, b)
    if turning.least >= 0:
        return "none: no product is negative, so no sum comes back", None, None
    levels = levels_of(spec, terms)
    if not levels:
        return f"none: {spec.accumulator} is not one accumulator to which terms are added", None, None
    found = [
        walk
        for number, level in enumerate(levels)
        for above in (True, False)
        for walk in _walks(level, levels[number + 1 :], above, turning, constant, side)
    ]
    if not found:
        return f"none: no sum of {terms} terms leaves the accumulator's range and comes back", None, None
    factors = list(dict.fromkeys(walk.pair.factor for walk in found))
    same = torch.tensor(factors, dtype=torch.float64)[:, None].expand(-1, terms).contiguous()
    signs = torch.cat([walk.signs(terms) for walk in found])
    about = _about(found, factors, side)
    return (about, same, signs.T.contiguous()) if side else (about, signs, same.T.contiguous())


@dataclass(frozen=True)
class _Pair:
    """Operands of one walk: ``factor`` is the same in every term, the other operand is ``out`` and then ``back``."""

    factor: float
    out: float
    back: float
    side: int

    def operands(self, outward: int, inward: int) -> tuple[Tensor, Tensor]:
        """(1, K) and (K, 1) of so many terms out of the range and back."""
        signs = torch.tensor([self.out] * outward + [self.back] * inward, dtype=torch.float64)
        same = torch.full_like(signs, self.factor)
        left, right = (same, signs) if self.side else (signs, same)
        return left[None], right[:, None]


@dataclass(frozen=True)
class _Walk:
    """Terms out of the range of ``level`` and back, and the steps of both events in words."""

    pair: _Pair
    outward: int
    inward: int
    words: str

    def signs(self, terms: int) -> Tensor:
        """The operand that changes its sign, (1, K), with zeros at the end."""
        row = self.pair.operands(self.outward, self.inward)[self.pair.side].reshape(1, -1)
        return torch.nn.functional.pad(row, (0, terms - row.shape[1]))


def _about(walks: list[_Walk], factors: list[float], side: int) -> str:
    mine, other = ("column {} of b", "row {} of a") if side else ("row {} of a", "column {} of b")
    said = []
    for at, walk in enumerate(walks):
        said.append(f"{mine.format(at)} with {other.format(factors.index(walk.pair.factor))}: {walk.words}")
    counted = "steps" if "at step" in said[0] else "terms"
    head = "sums leave the accumulator's range and return by more than the excess"
    return f"{head}: {'; '.join(said)} ({counted} count from 0)"


def _walks(
    level: Level, around: list[Level], above: bool, turning: Numbers, constant: Numbers, side: int
) -> Iterator[_Walk]:
    """At most two walks: inside the chunk of the level, and back in the accumulator around it."""
    pairs = list(_pairs(level, above, turning, constant, side))
    inside = next((walk for pair in pairs if (walk := _inside(level, pair, above, around))), None)
    if inside:
        yield inside
    if (inside is None or level.late) and around and around[0].unit == level.room:
        found = (_walk_inside(level, around[0], pair, above) for pair in pairs)
        yield from [walk for walk in found if walk][:1]


def _pairs(level: Level, above: bool, turning: Numbers, constant: Numbers, side: int) -> Iterator[_Pair]:
    """Operands from the largest to smaller ones, for accumulators that a large product would cross at once."""
    most, whole = max(map(abs, level.limits)), level.own.accumulator.integer_operands
    for plus, minus in ((turning.most, turning.least), (turning.small, -turning.small)):
        wanted = [most * part / level.unit / plus for part in _PARTS]
        halves = [constant.most / 2**n for n in range(1, _HALVINGS + 1)]
        rounded = gs.quantize(torch.tensor([*wanted, *halves], dtype=torch.float64), constant.format).tolist()
        for factor in dict.fromkeys([constant.most, *rounded]):
            if 0 < factor <= constant.most and not (whole and (factor % 1 or plus % 1 or minus % 1)):
                yield _Pair(factor, plus if above else minus, minus if above else plus, side)


def _inside(level: Level, pair: _Pair, above: bool, around: list[Level]) -> _Walk | None:
    """Out and back within the terms of one chunk of the level."""
    plan = _plan(level, pair, above)
    if plan is None:
        return None
    for more in (0, 1):
        walk = dataclasses.replace(plan, outward=plan.outward + more).balanced()
        if walk.outward + walk.inward > level.room // level.unit:
            return None
        if _recovers(level, walk, pair):
            nested = bool(around) or level.name != "steps"
            ends = [end * level.unit - 1 for end in (_crossing(level, plan, walk, pair), walk.outward + walk.inward)]
            left, back = (level.step_words(end) if nested else f"step {end}" for end in ends)
            words = f"{'above' if above else 'below'} at {left}, without limits inside again at {back}"
            if nested and level.late:
                words = f"{'above' if above else 'below'} within {left}, inside again at their end"
            return _Walk(pair, walk.outward * level.unit, walk.inward * level.unit, words)
    return None


def _walk_inside(level: Level, around: Level, pair: _Pair, above: bool) -> _Walk | None:
    """Out of the range with a whole chunk of the level, and back in the chunk after it."""
    plan = _plan(level, pair, above)
    units = level.room // level.unit
    if plan is None or around.room < 2 * level.room or level.room % level.unit:
        return None
    walk = dataclasses.replace(plan, outward=units).balanced()
    if walk.inward > units or not _carries(level, around, walk, pair):
        return None
    left = level.step_words(_crossing(level, plan, walk, pair) * level.unit - 1)
    back = around.step_words(level.room)
    words = f"{'above' if above else 'below'} at {left}, inside again at {back}"
    return _Walk(pair, level.room, walk.inward * level.unit, words)


@dataclass(frozen=True)
class _Plan:
    """Numbers of steps: ``out`` and ``back`` are what one step adds, ``limit`` is the end that is crossed."""

    out: float
    back: float
    limit: float
    outward: int
    inward: int = 0

    @property
    def unlimited(self) -> float:
        """The sum in an accumulator without limits."""
        return self.outward * self.out + self.inward * self.back

    def balanced(self) -> _Plan:
        """With the fewest steps back that bring the sum inside the limit."""
        excess = self.outward * self.out - self.limit
        return dataclasses.replace(self, inward=math.floor(excess / -self.back) + 1)


def _plan(level: Level, pair: _Pair, above: bool) -> _Plan | None:
    """The fewest steps that cross the limit; None if the terms of a chunk do not."""
    steps = level.step_of(*pair.operands(level.unit, 0)), level.step_of(*pair.operands(0, level.unit))
    sign, limit = (1, level.limits[1]) if above else (-1, level.limits[0])
    out, back = steps
    if not (math.isfinite(out) and math.isfinite(back) and sign * out > 0 > sign * back):
        return None
    units = level.room // level.unit
    if sign * (units * out - limit) <= 0 or abs(units * out - limit) >= abs(back) * 2**62:
        return None
    return _Plan(out, back, limit, math.floor(limit / out) + 1)


def _crossing(level: Level, plan: _Plan, walk: _Plan, pair: _Pair) -> int:
    """The number of steps after which the accumulator is limited; rounded sums may need more than exact ones."""
    for count in range(plan.outward, walk.outward):
        held = level.sum_of(*pair.operands(count * level.unit, 0))
        if level.wraps or held == plan.limit or not math.isfinite(held):
            return count
    return walk.outward


def _recovers(level: Level, plan: _Plan, pair: _Pair) -> bool:
    """Whether the level's own sums show that it was limited at every step."""
    outward, inward = plan.outward * level.unit, plan.inward * level.unit
    crossed, final = (level.sum_of(*pair.operands(outward, count)) for count in (0, inward))
    if not math.isfinite(final):
        return not math.isfinite(crossed)  # infinities and NaN stay
    if not (_within(level, final) and _within(level, plan.unlimited)):
        return False
    if level.late or level.wraps:  # the sum is right again
        return crossed != plan.outward * plan.out and final == plan.unlimited
    return crossed == plan.limit and final != _rounded(level, plan.unlimited)


def _carries(level: Level, around: Level, plan: _Plan, pair: _Pair) -> bool:
    """Whether the sums around the level show that its partial sum was limited."""
    outward, inward = plan.outward * level.unit, plan.inward * level.unit
    crossed, final = level.sum_of(*pair.operands(outward, 0)), around.sum_of(*pair.operands(outward, inward))
    if not math.isfinite(final) or not (_within(level, plan.unlimited) and _within(around, final)):
        return False
    limited = crossed != plan.outward * plan.out if level.wraps else crossed == plan.limit
    return limited and _within(around, crossed) and final != _rounded(around, plan.unlimited)


def _within(level: Level, x: float) -> bool:
    least, most = level.limits
    return least < x < most


def _rounded(level: Level, x: float) -> float:
    return float(gs.quantize(torch.tensor([x], dtype=torch.float64), level.own.accumulator.add_cast))
