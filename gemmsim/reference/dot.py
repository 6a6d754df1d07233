"""One output element, and the table of what each accumulator makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..arithmetic import Accumulator, Palette, UnsupportedSpec
from ..formats import Cast, FloatFormat
from .dyadic import Value, add
from .philox import Site, step_draw, step_draws
from .rounding import Rounder, rounder

__all__ = ["Dot", "Tally", "check_known", "implements", "total"]


@dataclass
class Tally:
    """What is counted over a whole element: combining roundings by their site, and overflows."""

    combined: dict[int, int] = field(default_factory=dict)
    overflows: int = 0


@dataclass
class Dot:
    """One output element: exact products in units of 2**unit, the addend C, and where its random bits come from."""

    products: list[Value]
    addend: Value | None
    unit: int
    #: Rounding to binary32 before every other one, for arithmetic="fp32".
    carrier: Rounder | None
    seed: int
    row: int
    col: int
    #: The operands of each product, after their casts.
    left: Sequence[float] = ()
    right: Sequence[float] = ()
    #: k of each product, for its random bits; None is 0, 1, 2, ...
    ks: Sequence[int] | None = None
    #: Constructors that combine totals around this one.
    depth: int = 0
    tally: Tally = field(default_factory=Tally)
    #: Where elements of block formats come without their scales: the scales of both operands, the terms that share a
    #: pair of them, the scales' format, and the product of the tensors' own scales (None: there are none).
    left_scales: Sequence[float] = ()
    right_scales: Sequence[float] = ()
    group: int | None = None
    scale_format: FloatFormat | None = None
    tensor_scales: float | None = None

    def __post_init__(self) -> None:
        if self.ks is None:
            self.ks = range(len(self.products))

    def part(self, start: int, stop: int, step: int = 1) -> Dot:
        """The terms of that slice for an inner accumulator."""
        assert self.ks is not None
        which = slice(start, stop, step)
        return replace(
            self,
            products=self.products[which],
            left=self.left[which],
            right=self.right[which],
            left_scales=self.left_scales[which],
            right_scales=self.right_scales[which],
            ks=self.ks[which],
            depth=self.depth + 1,
        )

    def without_scales(self) -> Dot:
        """The same terms with scales of 1."""
        return replace(self, left_scales=(), right_scales=(), group=None, scale_format=None, tensor_scales=None)

    def permuted(self, order: Sequence[int]) -> Dot:
        """The terms in that order; k counts positions."""
        products, left, right = ([x[k] for k in order] for x in (self.products, self.left, self.right))
        return replace(self, products=products, left=left, right=right)

    def exact(self, x: Value) -> Value:
        """``x`` as the arithmetic delivers it: itself, or rounded to binary32."""
        return x if self.carrier is None else self.carrier(x)

    def rounder(self, cast: Cast) -> Rounder:
        """Rounding to ``cast`` of numbers in this element's units."""
        return rounder(cast, self.unit)

    def terms(self, mul: Cast | None) -> list[Value]:
        """The products as they enter the sum: exact, or rounded by ``mul``."""
        if mul is None:
            return self.products
        round_mul = self.rounder(mul)
        draws = self.draws(mul, Site.PRODUCT)
        return [round_mul(self.exact(p), R) for p, R in zip(self.products, draws, strict=True)]

    def draws(self, cast: Cast, site: int, ks: Sequence[int] | None = None) -> Sequence[int]:
        """Random draws of ``cast`` for each k of ``ks`` (default: the terms'); zeros where it needs none."""
        ks = self.ks if ks is None else ks
        assert ks is not None
        if not cast.is_stochastic or not ks:
            return [0] * len(ks)
        first = ks[0]
        found = step_draws(self.seed, self.row, self.col, first, ks[-1] + 1, site, cast.rounding.bits)
        return [found[k - first] for k in ks]

    def combining(self, cast: Cast, site: int = Site.COMBINE) -> Callable[[Value], Value]:
        """Rounding of an exact sum of totals to ``cast``; each use takes the element's next draw at this depth."""
        rounding = self.rounder(cast)
        place = site + Site.LEVEL * self.depth

        def combine(x: Value) -> Value:
            index = self.tally.combined.get(place, 0)
            self.tally.combined[place] = index + 1
            R = 0
            if cast.is_stochastic:
                R = step_draw(self.seed, self.row, self.col, index, place, cast.rounding.bits)
            return rounding(self.exact(x), R)

        return combine

    def running(self, totals: Sequence[Value], cast: Cast) -> Value:
        """``S = R(S + t)`` for each total in order, S from +0."""
        combine = self.combining(cast)
        s: Value = 0
        for t in totals:
            s = combine(add(s, t))
        return s


#: How each accumulator turns the products of an element into its value.
_METHODS: dict[type[Accumulator], Callable[[Any, Dot], Value]] = {}


def implements(kind: type[Accumulator]) -> Callable[[Callable[[Any, Dot], Value]], Callable[[Any, Dot], Value]]:
    """Decorator: the function ``(accumulator, dot) -> value`` is the meaning of accumulators of class ``kind``."""

    def enter(method: Callable[[Any, Dot], Value]) -> Callable[[Any, Dot], Value]:
        _METHODS[kind] = method
        return method

    return enter


def total(accumulator: Accumulator, dot: Dot) -> Value:
    """What ``accumulator`` makes of ``dot``."""
    return _METHODS[type(accumulator)](accumulator, dot)


def check_known(accumulator: Accumulator) -> None:
    """``UnsupportedSpec`` unless ``accumulator`` and all inside it have a reference."""
    if isinstance(accumulator, Palette):
        for member in accumulator.members:
            check_known(member)
        return
    if type(accumulator) not in _METHODS:
        known = ", ".join(sorted({kind.name for kind in _METHODS} | {Palette.name}))
        raise UnsupportedSpec(f"reference has no {type(accumulator).__name__}; allowed: {known}.\n  Use one of them.")
    inner = getattr(accumulator, "inner", None)
    if isinstance(inner, Accumulator):
        check_known(inner)
