"""How totals become one number: a rounding of a running sum, a word, or an accumulator whose terms are the totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from ..formats import Cast
from ..formats.errors import shown
from .accumulator import Accumulator
from .argument_kinds import ACCUMULATOR, CastKind
from .errors import spec_error
from .tree import Tree

__all__ = [
    "COMBINE",
    "RUNNING",
    "TOTALS",
    "TOTALS_CAST",
    "How",
    "casts_of",
    "check_tree",
    "explain_how",
    "levels_of",
    "register_of",
]

#: A rounding of S + t for the totals t in order, a word, or an accumulator over partial sums.
How = Cast | Accumulator | str


class TotalsKind(CastKind):
    """A rounding of each sum of totals; unless ``running``, also an accumulator whose terms are the totals, each times
    1."""

    def __init__(self, running: bool = False) -> None:
        super().__init__(takes_two=not running)
        self.running = running

    def read(self, value: object, owner: str, name: str) -> Cast | Accumulator:  # type: ignore[override]
        if not ACCUMULATOR.makes(value) and not (isinstance(value, Mapping) and value.get("kind") != "cast"):
            return super().read(value, owner, name)
        found = cast("Accumulator", ACCUMULATOR.read(value, owner, name))
        if found.rounding_alone is not None:
            return found.rounding_alone
        if found.takes_totals and not self.running:
            return found
        given = value.strip() if isinstance(value, str) else found
        wider = "fp32" if found.is_custom or isinstance(found, Tree) else f"{found.add_cast}"
        saturating = ", which saturates" if found.counts_overflows else ""
        raise spec_error(
            f"{owner}: {name}={given}", self._allowed(), f"Give a format, such as {name}={wider}{saturating}."
        )

    def _allowed(self) -> str:
        if self.running:
            return (
                "a format with its rounding, or an accumulator that is one, sequential(format) or int(P, saturate): "
                "partial sums are added in order, S = R(S + t)"
            )
        return (
            "a format with its rounding (partial sums are added in order, S = R(S + t)), a compensated sum without "
            "random bits, and chunked, promote, interleaved, pairwise, splitk and tree made of these, without "
            "operands, products, seeds or addends inside"
        )

    def text(self, value: Cast | Accumulator) -> str:
        return ACCUMULATOR.text(value) if isinstance(value, Accumulator) else str(value)

    def json(self, value: Cast | Accumulator) -> object:
        return ACCUMULATOR.json(value) if isinstance(value, Accumulator) else super().json(value)


class CombineKind(TotalsKind):
    """What ``TotalsKind`` takes, or one of the words: in order, adjacent pairs, halves."""

    words = ("sequential", "pairwise", "halves")

    def read(self, value: object, owner: str, name: str) -> How:  # type: ignore[override]
        word = value.strip().lower() if isinstance(value, str) else value
        if isinstance(word, str) and word in self.words:
            return word
        if isinstance(word, str) and not ACCUMULATOR.makes(word) and word.isalpha():
            allowed = f"{', '.join(map(repr, self.words))}, a format, or an accumulator over partial sums"
            try:
                return super().read(value, owner, name)
            except ValueError:
                raise spec_error(f"{owner}: {name}={shown(value)}", allowed, f"Give {name} as one of these.") from None
        return super().read(value, owner, name)

    def text(self, value: How) -> str:
        return value if isinstance(value, str) else super().text(value)

    def json(self, value: How) -> object:
        return value if isinstance(value, str) else super().json(value)


TOTALS = TotalsKind()
#: Totals that are added in order, and no other way.
RUNNING = TotalsKind(running=True)
COMBINE = CombineKind()
#: A rounding alone, which may be two in a row.
TOTALS_CAST = CastKind(takes_two=True)


def register_of(how: How, register: Cast) -> Cast:
    """The rounding of what ``how`` makes of totals that are in ``register``."""
    if isinstance(how, Cast):
        return how
    if isinstance(how, str) or (isinstance(how, Tree) and how.fmt is None):
        return register
    return how.add_cast


def casts_of(how: How, register: Cast) -> Iterator[Cast]:
    """Every rounding that ``how`` makes of totals that are in ``register``."""
    if isinstance(how, Accumulator):
        yield from how.casts()
    if not isinstance(how, Accumulator) or (isinstance(how, Tree) and how.fmt is None):
        yield register_of(how, register)


def levels_of(how: How | None) -> int:
    """How many constructors that combine totals ``how`` is, the running sum of a plain register included."""
    return how.levels + 1 if isinstance(how, Accumulator) and not isinstance(how, Tree) else 1


def check_tree(how: How, count: int | None, owner: str) -> None:
    """``SpecError`` where ``how`` is a tree of another number of totals than ``count`` (None: no fixed number)."""
    if not isinstance(how, Tree) or how.leaves == count:
        return
    if count is None:
        raise spec_error(
            f"{owner} with {how}, whose number of partial sums depends on K",
            "a tree over the lanes of interleaved or the slices of splitk, whose number is fixed",
            "Use pairwise(...) or interleaved(...) over the partial sums.",
        )
    raise spec_error(
        f"{owner} of {count} partial sums with a tree of {how.leaves} leaves",
        f"a tree with the leaves 0 to {count - 1}",
        "Name each partial sum once.",
    )


def explain_how(how: How, register: Cast, what: str) -> list[tuple[str, str]]:
    """Words for how totals, which are ``what`` ("lane", "chunk", "slice"), are combined."""
    if isinstance(how, Accumulator):
        lines = [line for line in how.explain_lines() if line[0] != "product"]
        return [("combine", f"the sums of the {what}s are the terms of {how}:"), *(("", f"{a}: {b}") for a, b in lines)]
    words = {
        "pairwise": "adjacent pairs, level by level",
        "halves": f"t_i + t_(i+n/2), then n/4, ..., n the power of two at or above the number of {what}s",
    }
    said = words.get(how, "") if isinstance(how, str) else ""
    in_order = f"S = R(S + t) for each {what}'s sum t in order"
    return [("combine", f"{said or in_order}, to {register_of(how, register).words()}")]
