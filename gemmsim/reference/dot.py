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

__all__ = ["Dot", "Tally", "check_known", "implements", "total", "with_first_tile"]


#: What is told of each step: its kind, k, formula, the values that go in, the exact result, what it was rounded to,
#: how, the exponent of their unit, and the runs around it.
Log = Callable[[str, "int | None", str, Sequence[Value], Value, Value, "Cast | None", int, "tuple[str, ...]"], None]


@dataclass
class Tally:
    """What is counted over a whole element: combining roundings by their site, and overflows."""

    combined: dict[int, int] = field(default_factory=dict)
    overflows: int = 0


@dataclass
class Dot:
    """One output element: exact products in units of 2**unit, and the addend C.

    ``row`` and ``col`` decide its random bits.

    Example:
        >>> one = gs.reference.Dot([k << 24 for k in (1, 2, 3)], None, -24, None, seed=0, row=0, col=0)
        >>> gs.reference.total(gs.acc.sequential("fp16"), one) / 2**24
        6.0
    """

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
    #: Whether the terms are totals of other accumulators, which are added as totals are.
    of_totals: bool = False
    tally: Tally = field(default_factory=Tally)
    #: Where elements of block formats come without their scales: the scales of both operands, the terms that share a
    #: pair of them, the scales' format, and the product of the tensors' own scales (None: there are none).
    left_scales: Sequence[float] = ()
    right_scales: Sequence[float] = ()
    group: int | None = None
    scale_format: FloatFormat | None = None
    tensor_scales: float | None = None
    #: Who is told of each step, if anybody; the runs of terms around this one, outermost first;
    #: and what stands between the operands of a product there.
    log: Log | None = None
    path: tuple[str, ...] = ()
    times: str = " * "
    #: Takes the place of each rounding, if somebody looks at them as they are made.
    watch: Callable[[Rounder], Callable[[Value, int], Value]] | None = None

    def __post_init__(self) -> None:
        if self.ks is None:
            self.ks = range(len(self.products))

    def part(self, which: Sequence[int], levels: int = 1) -> Dot:
        """The terms at these places for an inner accumulator, ``levels`` deeper; places past the end are left out."""
        assert self.ks is not None
        ks = _chosen(self.ks, which)
        return replace(
            self,
            path=self.path if self.log is None else (*self.path, _span(ks)),
            products=_chosen(self.products, which),
            left=_chosen(self.left, which),
            right=_chosen(self.right, which),
            left_scales=_chosen(self.left_scales, which),
            right_scales=_chosen(self.right_scales, which),
            ks=ks,
            depth=self.depth + levels,
        )

    def over(self, totals: Sequence[Value], shown: Sequence[float]) -> Dot:
        """The partial sums as the terms of another accumulator, each times 1; ``shown`` are their values."""
        return replace(
            self,
            products=list(totals),
            left=shown,
            right=[1.0] * len(totals),
            left_scales=(),
            right_scales=(),
            ks=range(len(totals)),
            of_totals=True,
        )

    def without_scales(self) -> Dot:
        """The same terms with scales of 1."""
        return replace(self, left_scales=(), right_scales=(), group=None, scale_format=None, tensor_scales=None)

    def permuted(self, order: Sequence[int]) -> Dot:
        """The terms in that order; k counts positions."""
        products, left, right = ([x[k] for k in order] for x in (self.products, self.left, self.right))
        return replace(self, products=products, left=left, right=right)

    def note(
        self, kind: str, formula: str, given: Sequence[Value], exact: Value, value: Value, cast: Cast | None = None,
        k: int | None = None,
    ) -> None:  # fmt: skip
        """Records one step in the log: ``formula`` of ``given`` is ``exact``, rounded by ``cast`` to ``value``."""
        if self.log is not None:
            self.log(kind, k, formula, given, exact, value, cast, self.unit, self.path)

    def noted_products(self) -> list[Value]:
        """The products, recorded in the log."""
        if self.log is not None:
            self._note_products(self.products, None)
        return self.products

    def _note_products(self, rounded: Sequence[Value], mul: Cast | None) -> None:
        assert self.ks is not None
        for i, (p, q) in enumerate(zip(self.products, rounded, strict=True)):
            self.note("product", f"{self.left[i]!r}{self.times}{self.right[i]!r}", (), p, q, mul, self.ks[i])

    def exact(self, x: Value) -> Value:
        """``x`` in the spec's arithmetic: unchanged, or rounded to binary32."""
        return x if self.carrier is None else self.carrier(x)

    def rounder(self, cast: Cast) -> Callable[..., Value]:
        """Rounding to ``cast`` of numbers in this element's units."""
        found = rounder(cast, self.unit)
        return found if self.watch is None else self.watch(found)

    def terms(self, mul: Cast | None) -> list[Value]:
        """The products as they enter the sum: exact, or rounded by ``mul``."""
        if mul is None:
            return self.noted_products()
        round_mul = self.rounder(mul)
        draws = self.draws(mul, Site.PRODUCT)
        rounded = [round_mul(self.exact(p), R) for p, R in zip(self.products, draws, strict=True)]
        if self.log is not None:
            self._note_products(rounded, mul)
        return rounded

    def draws(self, cast: Cast, site: int, ks: Sequence[int] | None = None) -> Sequence[int]:
        """The random numbers of ``cast`` for each k of ``ks`` (default: the terms'); zeros if it is not stochastic."""
        ks = self.ks if ks is None else ks
        assert ks is not None
        if not cast.is_stochastic or not ks:
            return [0] * len(ks)
        first = ks[0]
        found = step_draws(self.seed, self.row, self.col, first, ks[-1] + 1, site, cast.rounding.bits)
        return [found[k - first] for k in ks]

    def combining(self, cast: Cast, site: int = Site.COMBINE, formula: str = "{} + {}") -> Callable[..., Value]:
        """The rounding of an exact sum of partial sums to ``cast``; each use takes the element's next random number at
        this depth.

        Its arguments are the sum and, for the log, the addends, as ``formula`` says.
        """
        rounding = self.rounder(cast)
        place = site + Site.LEVEL * self.depth

        def combine(x: Value, *given: Value) -> Value:
            index = self.tally.combined.get(place, 0)
            self.tally.combined[place] = index + 1
            R = 0
            if cast.is_stochastic:
                R = step_draw(self.seed, self.row, self.col, index, place, cast.rounding.bits)
            rounded = rounding(self.exact(x), R)
            self.note("combine", formula if given else "", given, x, rounded, cast)
            return rounded

        return combine

    def running(self, totals: Sequence[Value], cast: Cast, start: Value = 0) -> Value:
        """``S = R(S + t)`` for each partial sum in order, S from ``start``."""
        combine = self.combining(cast)
        s: Value = start
        for t in totals:
            s = combine(add(s, t), s, t)
        return s


def _chosen(some: Any, which: Sequence[int]) -> Any:
    """Those of ``some`` in the places ``which`` that it has."""
    if isinstance(which, range):
        return some[which.start : which.stop : which.step]
    return [some[i] for i in which if i < len(some)]


def _span(ks: Sequence[int]) -> str:
    """Words for the terms of a run."""
    if not ks:
        return "no terms"
    if len(ks) == 1:
        return f"k = {ks[0]}"
    steps = {later - k for k, later in zip(ks, ks[1:], strict=False)}
    step = min(steps)
    if len(steps) == 1:
        every = "" if step == 1 else f", every {step}"
    else:
        width = next(i for i, (k, later) in enumerate(zip(ks, ks[1:], strict=False), 1) if later - k > 1)
        every = f", {width} of every {ks[width] - ks[0]}"
    return f"k = {ks[0]} .. {ks[-1]}{every}"


def with_first_tile(tile: int | None, dot: Dot) -> Dot:
    """The terms of ``dot`` with zeros after the first K mod ``tile`` of them, so that these are a whole tile."""
    rest = 0 if tile is None else len(dot.products) % tile
    if not rest:
        return dot
    assert tile is not None and dot.ks is not None
    fill = tile - rest

    def filled(some: Sequence[Any], zero: Any) -> list[Any]:
        return [*some[:rest], *[zero] * fill, *some[rest:]]

    return replace(
        dot,
        products=filled(dot.products, 0),
        left=filled(dot.left, 0.0),
        right=filled(dot.right, 0.0),
        ks=filled(dot.ks, None),
    )


#: How each accumulator turns the products of an element into its value.
_METHODS: dict[type[Accumulator], Callable[[Any, Dot], Value]] = {}


def implements(kind: type[Accumulator]) -> Callable[[Callable[[Any, Dot], Value]], Callable[[Any, Dot], Value]]:
    """Decorator: the function ``(accumulator, dot) -> value`` is the meaning of accumulators of class ``kind``.

    Example:
        >>> class Largest(gs.arithmetic.Exact): ...  # a new class has no meaning yet
        >>> _ = gs.reference.implements(Largest)(lambda accumulator, dot: max(dot.products))
        >>> gs.reference.total(Largest(), gs.reference.Dot([1, 5, 3], None, 0, None, seed=0, row=0, col=0))
        5
    """

    def enter(method: Callable[[Any, Dot], Value]) -> Callable[[Any, Dot], Value]:
        _METHODS[kind] = method
        return method

    return enter


def total(accumulator: Accumulator, dot: Dot) -> Value:
    """The result of ``accumulator`` for ``dot``, in units of 2**unit.

    Example:
        >>> one = gs.reference.Dot([1, 2, 3], None, 0, None, seed=0, row=0, col=0)
        >>> gs.reference.total(gs.acc.int(3), one)  # 6 wraps
        -2
    """
    method = _method(accumulator)
    assert method is not None, accumulator
    return method(accumulator, dot)


def _method(accumulator: Accumulator) -> Callable[[Any, Dot], Value] | None:
    """Of its class, or of the nearest one above, which users' own classes share."""
    return next((_METHODS[kind] for kind in type(accumulator).__mro__ if kind in _METHODS), None)


def check_known(accumulator: Accumulator) -> None:
    """``UnsupportedSpec`` unless ``accumulator`` and all inside it have a reference."""
    if isinstance(accumulator, Palette):
        for member in accumulator.members:
            check_known(member)
        return
    if _method(accumulator) is None:
        known = ", ".join(sorted({kind.name for kind in _METHODS if hasattr(kind, "name")} | {Palette.name}))
        raise UnsupportedSpec(f"reference has no {type(accumulator).__name__}; allowed: {known}.\n  Use one of them.")
    for inside in (getattr(accumulator, "inner", None), getattr(accumulator, "how", None)):
        if isinstance(inside, Accumulator) and inside.takes_terms:
            check_known(inside)
