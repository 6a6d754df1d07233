"""The accumulators inside an accumulator: one for single terms, and one for the partial sums of each level."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.arithmetic import Accumulator, Chunked, Fixed, Integer, Lookup, Promote, Sequential
from gemmsim.formats import FP64, Cast

__all__ = ["Level", "levels_of", "overflowing"]

#: Bits of an integer accumulator that holds every sum that float64 holds exactly.
_WIDE = 53


@dataclass(frozen=True)
class Level:
    """One accumulator of a product.

    Attributes:
        name: of its exported file: "steps", "totals_1", ...
        own: the product with this accumulator as the outermost one.
        added: the product that gives what one step adds, without the limits of this accumulator.
        unit: terms of a step.
        room: terms after which it starts from zero again, or all terms.
        late: the accumulator limits its sum only once, after ``room`` terms.
        wraps: a sum out of its range wraps around.
        terms: of the product, K.
    """

    name: str
    own: gs.GemmSpec
    added: gs.GemmSpec
    unit: int
    room: int
    late: bool
    wraps: bool
    terms: int

    @property
    def limits(self) -> tuple[float, float]:
        """Its smallest and its largest value."""
        fmt = self.own.accumulator.add_cast.format
        return float(fmt.min), float(fmt.max)

    def sum_of(self, a: Tensor, b: Tensor) -> float:
        """The accumulator after the terms of one row and one column."""
        return _value(a, b, self.own)

    def step_of(self, a: Tensor, b: Tensor) -> float:
        """What a step with these terms adds."""
        return _value(a, b, self.added)

    def chunk_and_step(self, term: int) -> tuple[int, int]:
        """First term of the chunk that has the term, and first term of its step."""
        chunk = term // self.room * self.room
        return chunk, chunk + (term - chunk) // self.unit * self.unit

    def step_words(self, term: int) -> str:
        """The step of the exported file that has the term."""
        chunk = term // self.room * self.room
        every = self.room if self.late else self.unit
        first = chunk + (term - chunk) // every * every
        last = min(first + every, chunk + self.room, self.terms) - 1
        return f"{f'terms {first} to {last}' if last > first else f'term {first}'} of {self.name}"


def levels_of(spec: gs.GemmSpec, terms: int) -> list[Level]:
    """The accumulators of a product that are one register each, innermost first.

    Levels whose partial sums are added by another accumulator, and innermost ones that are no format, ``int`` or
    ``fixed``, are left out.
    """
    found = _levels(spec.accumulator, terms)
    return [
        Level(
            name,
            gs.GemmSpec(spec.a, spec.b, accumulator=own, arithmetic=spec.arithmetic),
            gs.GemmSpec(spec.a, spec.b, accumulator=added, arithmetic=spec.arithmetic),
            unit,
            room,
            getattr(_bare(own), "when", "") == "end",
            getattr(_bare(own), "overflow", "") == "wrap",
            terms,
        )
        for name, own, added, unit, room in found
    ]


def overflowing(levels: list[Level], a: Tensor, b: Tensor) -> Level | None:
    """The innermost level that leaves its range with the last term of (1, K) and (K, 1)."""
    for level in levels:
        chunk, first = level.chunk_and_step(a.shape[1] - 1)
        before = level.sum_of(a[:, chunk:first], b[chunk:first]) if first > chunk else 0.0
        least, most = level.limits
        if not least <= before + level.step_of(a[:, first:], b[first:]) <= most:
            return level
    return None


def _levels(accumulator: Accumulator, room: int) -> list[tuple[str, Accumulator, Accumulator, int, int]]:
    """Name, accumulator, what a step adds, terms of a step and room of each level."""
    if isinstance(accumulator, Lookup):
        return [
            (name, dataclasses.replace(accumulator, inner=own), dataclasses.replace(accumulator, inner=added), unit, n)
            for name, own, added, unit, n in _levels(accumulator.inner, room)
        ]
    if isinstance(accumulator, (Chunked, Promote)):
        inside = _levels(accumulator.inner, min(accumulator.n, room))
        if isinstance(accumulator.how, Cast):
            name = f"totals_{_depth(accumulator)}"
            inside.append((name, accumulator, accumulator.inner, accumulator.n, room))
        return inside
    if not isinstance(accumulator, (Integer, Fixed, Sequential)):
        return []
    return [("steps", accumulator, _unlimited(accumulator), 1, room)]


def _depth(accumulator: Accumulator) -> int:
    """Levels of chunks."""
    return 1 + _depth(accumulator.inner) if isinstance(accumulator, (Chunked, Promote)) else 0


def _bare(accumulator: Accumulator) -> Accumulator:
    return accumulator.inner if isinstance(accumulator, Lookup) else accumulator


def _unlimited(accumulator: Integer | Fixed | Sequential) -> Accumulator:
    """An accumulator that gives the product of one term as this one adds it."""
    if isinstance(accumulator, Integer):
        return Integer(_WIDE, shift=accumulator.shift)
    if isinstance(accumulator, Fixed):
        return dataclasses.replace(accumulator, P=_WIDE)
    return Sequential(Cast(FP64), mul=accumulator.mul)


def _value(a: Tensor, b: Tensor, spec: gs.GemmSpec) -> float:
    return float(gs.qmatmul(a, b, spec, seed=0, out_dtype=torch.float64))
