"""Specs that a tree and measured roundings allow, the likely ones first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product

from ..arithmetic import GemmSpec, Hardware, SpecError
from ..formats import FloatFormat, FormatError, parse_scalar
from ..hardware import OPS, Instruction, instructions
from ..hardware.operands import OPERANDS
from .measuring import Rounded
from .naming import cast_texts
from .ranges import Ranges
from .shapes import Chain, Exactly, Shape, Slices, Steps
from .sum_tree import EXACT, STEP

__all__ = [
    "Measured",
    "accumulators_without_order",
    "hardware_rows",
    "spec_texts",
    "rare_accumulators_without_order",
    "specs_of_shape",
]


@dataclass(frozen=True)
class Measured:
    """What candidates are made of.

    Attributes:
        ranges: exponents that survive.
        operands: texts of the casts of a and of b, "" for none: each way that they may be cast.
        out: text of the cast of the result, "" for none; each way.
        product: bits of a product where it enters its addition, None where it is exact.
        bits: precision of the operands.
        least: bits that any sum is read with.
        most: bits that are kept beside a larger number, anywhere.
        product_modes: roundings of products that fit.
    """

    ranges: Ranges
    operands: tuple[tuple[str, str], ...]
    out: tuple[str, ...]
    product: int | None
    bits: tuple[int, int] = (24, 24)
    least: int = 24
    most: int = 24
    product_modes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, Instruction]]:
        """Rows of the tables whose operands have as many bits."""
        return [
            (text, one)
            for text, one in hardware_rows()
            if tuple(OPERANDS[name].format.p for name in (one.a, one.b)) in (self.bits, self.bits[::-1])
        ]

    @property
    def widths(self) -> tuple[int, ...]:
        """Precisions that sums may have. A Kahan sum keeps one more bit beside a larger number than its format."""
        read = [bits for bits in self.bits if bits < 24]  # operands that are rounded, or products in a sum's own format
        return tuple(dict.fromkeys((self.least, self.most, max(1, self.most - 1), *read)))

    def casts(self, rounded: Rounded) -> list[str]:
        """Casts with this precision and rounding."""
        if rounded.p is None:
            return ["fp32"]
        return self.texts(rounded.p, rounded.modes)

    def texts(self, p: int, modes: tuple[str, ...]) -> list[str]:
        """Casts to ``p`` bits that go with the range of products."""
        ranges = self.ranges
        reach = ranges.a[0] + ranges.b[0], ranges.a[1] + ranges.b[1]
        found = cast_texts(p, modes, ranges.product, reach, ranges.past)
        if not self._result_ends():
            return found
        return list(dict.fromkeys([*cast_texts(p, modes, reach, reach, None), *found]))

    def _result_ends(self) -> bool:
        """Whether the largest number that comes back is that of the result's format, which says nothing of sums."""
        out = parse_scalar(self.out[0].split("/")[0]) if self.out and self.out[0] else None
        return isinstance(out, FloatFormat) and out.emax == self.ranges.product[1]

    def products(self, adds: list[str]) -> list[str | None]:
        """Roundings of products, None for none."""
        if self.product is None:  # beyond what a narrow register shows, products may still be rounded
            wide = sum(self.bits) > 24
            return [None, *(f"fp32{end}" for end in ("", "/rtz", "/ru", "/rd", "/rna") if wide and "fp32" not in adds)]
        same = [one for one in adds if parse_scalar(one.split("/")[0]).p == self.product and "via" not in one]  # type: ignore[union-attr]
        modes = dict.fromkeys((*self.product_modes, "rne", "rtz", "rna", "ru", "rd", "ro"))
        others = [text for mode in modes for text in self.texts(self.product, (mode,))]
        if self.ranges.product[1] < self.ranges.a[1] + self.ranges.b[1]:
            others += [f"{text}/sat" for text in self.texts(self.product, tuple(modes)[:1]) if "/sat" not in text]
        return [*dict.fromkeys([*same, *others]), None]


def spec_texts(accumulator: str, measured: Measured) -> Iterator[str]:
    """Specs with this accumulator: without casts first."""
    takes_formats = "hw(" in accumulator or "fused(" in accumulator
    for (a, b), out in product((("", ""),) if takes_formats else measured.operands, measured.out):
        operands = "" if not a and not b else f"{a} " if a == b else f"{a or 'fp32'} * {b or 'fp32'} "
        yield f"{operands}: {accumulator}{f' -> {out}' if out else ''}"


def specs_of_shape(shape: Shape, roundings: Mapping[str, Rounded], measured: Measured, most: int) -> Iterator[str]:
    """At most so many specs with the order ``shape``, those with likely parts first. ``roundings``: by place; the
    places that have no addition take another's."""
    options = {place: _options(shape, place, roundings, measured) for place in _text_places(shape)}
    for chosen in islice(_likely_first(list(options.values())), most):
        accumulator = shape.text(dict(zip(options, chosen, strict=True)), "")
        yield from spec_texts(accumulator, measured)


def _likely_first(options: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """One of each list: first those with small indices in sum."""
    for total in range(sum(len(one) - 1 for one in options) + 1):
        yield from _with_sum(options, total)


def _with_sum(options: list[list[str]], total: int) -> Iterator[tuple[str, ...]]:
    if not options:
        if total == 0:
            yield ()
        return
    for index in range(min(total, len(options[0]) - 1) + 1):
        for rest in _with_sum(options[1:], total - index):
            yield (options[0][index], *rest)


def _text_places(shape: Shape, place: str = "") -> list[str]:
    """Places whose text the shape asks for."""
    if isinstance(shape, (Chain, Exactly, Steps)) or not hasattr(shape, "inner"):
        return [place]
    found = _text_places(shape.inner, place + "i")
    over = getattr(shape, "over", None)
    return found if over is None else [*found, *_text_places(over, place + "o")]


def _at(shape: Shape, place: str) -> Shape:
    for letter in place:
        shape = getattr(shape, "inner" if letter == "i" else "over")
    return shape


def _options(shape: Shape, place: str, roundings: Mapping[str, Rounded], measured: Measured) -> list[str]:
    here = _at(shape, place)
    near = [roundings[place[:end]] for end in range(len(place), -1, -1) if place[:end] in roundings]
    rounded = near[0] if near else next(iter(roundings.values()), Rounded(24, ("rne",)))
    casts = measured.casts(rounded)
    if place.endswith("i"):  # a narrower total may hide the register of what it is the total of
        casts = list(
            dict.fromkeys((*casts, *(one for one in ("fp32", "fp16", "bf16", "e8m10") if _is_wider(one, rounded))))
        )
    is_leaf = place == shape.leaf()
    products: list[str | None] = measured.products(casts) if is_leaf else [None]
    if place not in roundings:
        products = [None, *(one for one in products if one is not None)]  # a single product is rounded either way
    if isinstance(here, Steps):
        return _steps(here, rounded, casts, measured)
    if isinstance(here, Exactly):
        more = (one for p in measured.widths for one in measured.texts(p, ("rne",)))
        casts = list(dict.fromkeys([*casts, *more]))
        # Over totals nothing may be lost because a wide register has room for all that narrow ones hold.
        return [*([] if is_leaf else ["fp32", *casts]), *_exact(casts, products, is_leaf, measured)]
    found = [_chain(cast, mul) for mul in products[:2] for cast in casts]
    if place.endswith("o") and isinstance(_at(shape, place[:-1]), Slices):
        found += [f"{cast}/via(fp32)" for cast in casts if rounded.p is not None and rounded.p < 24]
        found += [f"{cast}, partial={one}" for cast in casts for one in ("bf16", "fp16", "fp32")]
    if isinstance(here, Chain):
        # Single additions of a Kahan sum do not show its format: what was carried on comes back.
        own = (one for p in measured.widths for one in measured.texts(p, ("rne",)))
        found += [f"kahan({cast})" for cast in dict.fromkeys((*own, *casts))]
    found += [_chain(cast, mul) for mul in products[2:] for cast in casts]
    if is_leaf and isinstance(here, Chain):
        found += [f"kahan({cast}, mul={mul})" for mul in products if mul is not None for cast in casts]
        if measured.ranges.product[1] < measured.ranges.a[1] + measured.ranges.b[1]:
            found += [_chain(f"{cast}/sat", mul) for mul in products for cast in casts if "/" not in cast]
        formats = dict.fromkeys(a.split("/")[0] or "fp32" for a, _ in measured.operands)
        outs = dict.fromkeys((*casts[:2], "fp32/rtz"))
        found += [f"fused(1, {kept}, {out}, a={a})" for out in outs for a in formats for kept in range(10, 27)]
    return found


def _is_wider(name: str, rounded: Rounded) -> bool:
    return rounded.p is not None and parse_scalar(name).p > rounded.p  # type: ignore[union-attr]


def _chain(cast: str, mul: str | None) -> str:
    return cast if mul is None else f"sequential({cast}, mul={mul})"


def _exact(casts: list[str], products: list[str | None], is_leaf: bool, measured: Measured) -> Iterator[str]:
    compensated = ("two_sum", "neumaier", "fast_two_sum", "kahan")
    yield from (f"{name}({cast})" for cast in casts for name in compensated)
    if is_leaf:
        yield from (f"exact({cast})" for cast in casts)
        yield from _registers(measured.ranges)
        yield from (f"binned({cast}, carry={carry})" for carry in (4, 1, 2, 3, 5, 6, 7, 8) for cast in casts)
    for mul, cast in product((one for one in products if one is not None), casts):
        yield from (f"{name}({cast}, mul={mul})" for name in compensated)


def _registers(ranges: Ranges) -> Iterator[str]:
    """Integer and fixed-point registers, by the range of what comes back."""
    low, high = ranges.product
    bits = high - low + 2
    if not 1 <= bits <= 53:
        return
    for frac in (-low, -low - 1):  # to nearest, half a quantum goes to zero; away from zero it comes back as one
        if frac < 0:
            continue
        for overflow in ("saturate", "wrap"):
            for mode in ("rtz", "rne", "rna", "ru", "rd", "ro"):
                yield f"fixed({high + frac + 2}, {frac}, rounding={mode}, overflow={overflow})"
                yield f"fixed({high + frac + 2},{frac})/{mode}{'/sat' if overflow == 'saturate' else ''}"


def integer_registers(ranges: Ranges) -> Iterator[str]:
    """Registers for operands that are integers."""
    high, shift = ranges.product[1] - ranges.shift, ranges.shift
    for signed, bits in ((True, high + 2), (True, high + 1), (False, high + 1), (True, 32), (True, 53)):
        for overflow, when in product(("wrap", "saturate"), ("every", "end")):
            if 1 <= bits <= 53:
                more = ("" if when == "every" else ", when=end") + ("" if signed else ", signed=false")
                yield f"int({bits}, {overflow}{more}{f', shift={shift}' if shift else ''})"


def _steps(here: Steps, rounded: Rounded, casts: list[str], measured: Measured) -> list[str]:
    """Rows of the tables with so many products a step, then the step with its numbers."""
    found = [text for text, one in measured.rows() if one.model.products == here.n or here.kind not in (STEP, EXACT)]
    first = "" if here.first is None else f", first={here.first}"
    found = [f"{text[:-1]}{first})" for text in found] if first else found
    kept: list[int | str] = [] if rounded.kept is None else [rounded.kept]
    if here.kind == EXACT:  # nothing is lost within a step whose register is wide
        inner = ("fp32", "exact(fp32)", "kahan(fp32)") if here.first is None else ()
        found += [f"chunked({here.n}, {one}, {cast})" for cast in casts for one in inner]
        kept = kept or ["exact", *range(27, 9, -1)]
    if rounded.p is not None and rounded.kept == rounded.p - 1:  # what is cut hides the register's own rounding
        casts = list(dict.fromkeys(["fp32/rtz", "fp32", *measured.texts(rounded.p, ("rne", "rtz")), *casts]))
    formats = dict.fromkeys(a.split("/")[0] or "fp32" for a, _ in measured.operands)
    found += [f"fused({here.n}, {one}, {cast}, a={a}{first})" for one, cast, a in product(kept, casts, formats)]
    return found


@lru_cache(maxsize=1)
def hardware_rows() -> tuple[tuple[str, Instruction], ...]:
    """``hw(...)`` of every row without block scales, and its instruction; NVIDIA's newest first."""
    found: dict[str, Instruction] = {}
    for one in reversed(instructions()):
        if one.scale is not None or one.c != one.d:
            continue
        for op in [name for name, kind in OPS.items() if kind.takes_in(one)][:1]:
            a, b, _, d = (OPERANDS[name].format for name in (one.a, one.b, one.c, one.d))
            try:
                row = Hardware(one.arch, op, str(a), str(b), out=str(d))
            except (SpecError, FormatError):
                continue
            found.setdefault(str(row), row.instruction)
    return tuple(found.items())


def accumulators_without_order(measured: Measured, roundings: list[Rounded]) -> Iterator[str]:
    """Specs to compare where no order was shown: exact and compensated sums, registers, rows of the tables."""
    if measured.ranges.integers:
        for accumulator in integer_registers(measured.ranges):
            yield from spec_texts(accumulator, measured)
    for rounded in roundings:
        for accumulator in _exact(measured.casts(rounded), [], True, measured):
            yield from spec_texts(accumulator, measured)


def rare_accumulators_without_order(measured: Measured, roundings: list[Rounded]) -> Iterator[str]:
    """As ``accumulators_without_order``: compensated sums of rounded products, and instructions."""
    for text, _ in measured.rows():
        yield from (f"{text}{f' -> {out}' if out else ''}" for out in measured.out)
    for text, row in measured.rows():  # operands of little range show no order of totals in a wider format
        for slices, grain in product((2, 3, 4, 5, 6, 8), dict.fromkeys((row.k, 64, 8, 1))):
            yield f"splitk({slices}, {text}, fp32, grain={grain})"
        yield from (f"promote({text}, {n * row.k})" for n in (1, 2, 4, 8, 16))
    for rounded in roundings:
        casts = measured.casts(rounded)
        for accumulator in _exact(casts, measured.products(casts), False, measured):
            yield from spec_texts(accumulator, measured)


def same_rows(spec: GemmSpec) -> list[str]:
    """Rows of the tables whose step is that of the ``hw`` in ``spec``: their chains have the same bits."""
    text = str(spec)
    mine = next((one for name, one in hardware_rows() if name in text), None)
    if mine is None:
        return []
    return [name for name, one in hardware_rows() if one.model == mine.model and (one.a, one.b) == (mine.a, mine.b)]
