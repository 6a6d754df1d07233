"""Two specs on the same operands: how often the bits agree, how large differences are, and where the first one is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec, SpecError, SpecLike
from gemmsim.formats import Cast, FixedFormat, Format, FormatError, Overflow, parse_cast
from gemmsim.ops.arrays import takes_arrays

from ._html import html_table
from ._keywords import says_keywords

__all__ = ["Comparison", "Difference", "compare"]

#: Upper ends of the classes of distances, in units in the last place; the last class has none.
CLASSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, math.inf)


@dataclass(frozen=True)
class Difference:
    """The first element, in row-major order, whose bits differ.

    ``at``: its index; ``a``, ``b``: both values; ``trace_a``, ``trace_b``: the steps that gave each (None if not
    traced); ``step``: index of the first step that both traces have and that differs in what was computed. It is None
    if they have no steps in common or were not traced.

    Example:
        >>> first = gs.compare(":fp16", ":fp32", torch.full((2, 99), 0.1), torch.ones(99, 1)).first
        >>> first.at, first.a, first.trace_a.steps[first.step].text
        ((0, 0), 9.9765625, '0.0 + 0.10000000149011612')
    """

    at: tuple[int, ...]
    a: float
    b: float
    trace_a: gs.Trace | None
    trace_b: gs.Trace | None
    step: int | None

    def __str__(self) -> str:
        text = f"first difference at {list(self.at)}: {self.a!r} and {self.b!r}"
        if self.trace_a is None or self.trace_b is None:
            return text
        if self.step is None:
            return f"{text}; the two sums do not have the same steps, so compare their traces (gs.trace)"
        one, other = self.trace_a.steps[self.step], self.trace_b.steps[self.step]
        place = _place(self.trace_a.steps, self.step)
        return f"{text}; the sums first differ at {place}:\n    {one}\n    {other}"


@dataclass(frozen=True)
class Comparison:
    """The differences between the results of two specs for the same operands.

    Attributes:
        spec_a, spec_b: canonical texts.
        shape: of the result.
        elements, equal: how many elements there are, and how many have the same bits (all NaN count as one).
        unit: name of the format whose units in the last place count.
        ulps: (upper end, count) of each class of distances in these units, 0 first; classes without elements are left
            out. Elements that are NaN or infinite in only one result, or infinite with opposite signs, have no
            distance.
        largest: the largest distance.
        special: (what, count) of elements that are NaN or infinite: "NaN in the first", "infinite in both, with
            opposite signs" and so on; kinds without elements are left out.
        first: the first difference, None if there is none.
        reasons: the origin of NaN, for each spec with elements that are NaN: operands that were NaN or infinite as
            given; operands that the spec's casts made NaN or infinite, with the largest value of their format;
            otherwise, with ``trace``, the step at which the sum left the finite numbers, for the first difference if
            that is NaN.

    Example:
        >>> found = gs.compare(":fp16", ":fp32", torch.full((2, 99), 0.1), torch.ones(99, 1))
        >>> found.equal, found.elements, found.largest, found.first.at
        (0, 2, 9.7998046875, (0, 0))
    """

    spec_a: str
    spec_b: str
    shape: tuple[int, ...]
    elements: int
    equal: int
    unit: str
    ulps: tuple[tuple[float, int], ...]
    largest: float
    special: tuple[tuple[str, int], ...]
    first: Difference | None
    reasons: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The fraction of elements whose bits are equal; 1 if there are no elements.

        Example:
            >>> gs.compare(":fp16", ":fp32", torch.tensor([[1.0], [0.1]]), torch.ones(1, 1)).share
            0.5
        """
        return self.equal / self.elements if self.elements else 1.0

    def to_dict(self) -> dict[str, object]:
        """The comparison as a plain dictionary, for JSON.

        Infinities and NaN are texts; the last class has no upper end (None).

        Example:
            >>> gs.compare(":fp16", ":fp32", torch.tensor([[1.0], [0.1]]), torch.ones(1, 1)).to_dict()["equal"]
            1
        """
        first = None
        if self.first is not None:
            one = self.first
            traces = {name: None if t is None else t.to_dict() for name, t in (("a", one.trace_a), ("b", one.trace_b))}
            first = {"at": list(one.at), "a": _plain(one.a), "b": _plain(one.b), "step": one.step, "traces": traces}
        return {
            "spec_a": self.spec_a,
            "spec_b": self.spec_b,
            "shape": list(self.shape),
            "elements": self.elements,
            "equal": self.equal,
            "share": self.share,
            "unit": self.unit,
            "ulps": [[None if math.isinf(end) else end, count] for end, count in self.ulps],
            "largest": self.largest,
            "special": dict(self.special),
            "reasons": list(self.reasons),
            "first": first,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.spec_a}  against  {self.spec_b}",
            f"  {self.equal} of {self.elements} elements equal, {self.share:.2%}; distances in ulp of {self.unit}:",
        ]
        lines += [f"  {name:16} {count:>10}  {share:>7}" for name, count, share in self._classes()]
        if self.largest:
            lines.append(f"  largest          {self.largest:g} ulp")
        lines += [f"  {words}" for words in self._special_words()]
        lines += [f"  {reason}" for reason in self.reasons]
        if self.first is not None:
            lines.append(f"  {self.first}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        special = "".join(f", {words}" for words in self._special_words())
        return (
            f"<Comparison of {self.spec_a!r} and {self.spec_b!r}: {self.share:.2%} of {self.elements} equal, "
            f"largest distance {self.largest:g} ulp of {self.unit}{special}>"
        )

    def _repr_html_(self) -> str:
        title = f"{self.spec_a} against {self.spec_b}: {self.equal} of {self.elements} elements equal, {self.share:.2%}"
        largest = [f"largest distance: {self.largest:g} ulp of {self.unit}"] if self.largest else []
        first = [] if self.first is None else str(self.first).split("\n")
        heads, notes = (
            (f"distance in {self.unit}", "elements", "fraction"),
            [*largest, *self._special_words(), *self.reasons, *first],
        )
        return html_table(heads, self._classes(), caption=title, notes=notes, right=2)

    def _classes(self) -> list[tuple[str, str, str]]:
        """(distance, elements, share of them) of each class, in words."""
        found, below = [], 0.0
        for end, count in self.ulps:
            name = "equal in value" if end == 0 else f"over {below:g}" if math.isinf(end) else f"up to {end:g} ulp"
            found.append((name, str(count), f"{count / self.elements:.2%}"))
            below = end
        return found

    def _special_words(self) -> list[str]:
        return [f"{count} of {self.elements} are {what}" for what, count in self.special]


@takes_arrays
@says_keywords("spec_a")
def compare(
    spec_a: SpecLike,
    spec_b: SpecLike,
    a: Tensor,
    b: Tensor,
    *,
    seed: int = 0,
    unit: str | Format | None = None,
    trace: bool = True,
) -> Comparison:
    """``qmatmul(a, b, spec_a)`` compared with ``qmatmul(a, b, spec_b)``, bit for bit.

    Args:
        spec_a, spec_b: specs, or what means one (not None, not ``QAffineFormats``).
        a, b: operands as ``qmatmul`` takes them, any shapes.
        seed: seed of the random bits of both.
        unit: the format whose units in the last place count: at a value v the spacing of that format at |v|. The
            default is the coarser one (fewer significant bits) of the formats in which both specs end: of their output
            casts, or without one of their accumulators.
        trace: whether the first difference is traced, which takes the reference about a microsecond per digit.

    Raises:
        SpecError, FormatError: for specs and a unit that mean nothing. DTypeError, ShapeError, DeviceError: as
        ``qmatmul``. UnsupportedSpec: for a spec that no backend computes, or that is traced and has no reference.

    Example:
        >>> gs.compare(":fp16", ":fp32", torch.full((2, 99), 0.1), torch.ones(99, 1))
        <Comparison of ':e5m10' and ':e8m23': 0.00% of 2 equal, largest distance 9.7998 ulp of e5m10>
    """
    if isinstance(spec_a, Tensor):
        do = "Give the specs first: compare(':bf16', ':fp32', a, b)."
        raise SpecError(f"compare: spec_a is a {type(spec_a).__name__}; allowed: a spec.\n  {do}")
    one, other = GemmSpec.of(spec_a), GemmSpec.of(spec_b)
    try:
        with torch.no_grad():
            x, y = (gs.qmatmul(a, b, spec, seed=seed) for spec in (one, other))
    except (gs.DTypeError, gs.ShapeError, gs.DeviceError, gs.SeedError) as error:
        raise type(error)(f"compare{str(error).removeprefix('qmatmul')}") from None
    measure = _unit(unit, one, other)
    same = _same_bits(x, y)
    distances = _ulps(x.double(), y.double(), measure)[same | (x.isfinite() & y.isfinite())]
    counts, left = [], distances
    for end in CLASSES:
        inside = left <= end
        counts.append((end, int(inside.sum())))
        left = left[~inside]
    first = None
    if not bool(same.all()):
        at = int((~same).flatten().nonzero()[0])
        first = _difference((one, other), (a, b), (x, y), at, seed, trace)
    return Comparison(
        one.key,
        other.key,
        tuple(x.shape),
        x.numel(),
        int(same.sum()),
        str(measure),
        tuple((end, count) for end, count in counts if count),
        float(distances.max()) if distances.numel() else 0.0,
        _special(x, y),
        first,
        tuple(_reasons((one, other), (a, b), (x, y), first)),
    )


def _plain(x: float) -> float | str:
    return x if math.isfinite(x) else str(x)


def _same_bits(x: Tensor, y: Tensor) -> Tensor:
    zeros = torch.signbit(x) == torch.signbit(y)
    return ((x == y) & ((x != 0) | zeros)) | (x.isnan() & y.isnan())


def _unit(unit: str | Format | None, *specs: GemmSpec) -> Format:
    if unit is not None:
        return parse_cast(unit).format
    ends = [(spec.out or spec.accumulator.add_cast).format for spec in specs]
    return min(ends, key=_precision)


def _precision(fmt: Format) -> int:
    return fmt.bits if isinstance(fmt, FixedFormat) else fmt.p


def _ulps(x: Tensor, y: Tensor, unit: Format) -> Tensor:
    """\\|x - y\\| over the spacing of ``unit`` at the larger magnitude; 0 where either is infinite or NaN."""
    if isinstance(unit, FixedFormat):
        spacing = torch.full_like(x, 2.0**-unit.frac)
    else:
        larger = torch.maximum(x.abs(), y.abs())
        exponent = torch.frexp(larger)[1].to(torch.float64) - 1
        lowest = max(unit.emin, -1022)
        spacing = torch.exp2(torch.where(larger == 0, float(lowest), exponent).clamp(min=lowest) - (unit.p - 1))
    # Divided first: the difference of two large numbers may be none.
    found = (x / spacing - y / spacing).abs().clamp(max=torch.finfo(torch.float64).max)
    return torch.where(x.isfinite() & y.isfinite(), found, 0.0)


def _special(x: Tensor, y: Tensor) -> tuple[tuple[str, int], ...]:
    """How many elements are NaN or infinite, by where."""
    (nan_x, nan_y), (inf_x, inf_y) = (x.isnan(), y.isnan()), (x.isinf(), y.isinf())
    kinds = {
        "NaN in the first": nan_x & ~nan_y,
        "NaN in the second": nan_y & ~nan_x,
        "NaN in both": nan_x & nan_y,
        "infinite in the first": inf_x & y.isfinite(),
        "infinite in the second": inf_y & x.isfinite(),
        "infinite in both": inf_x & (x == y),
        "infinite in both, with opposite signs": inf_x & inf_y & (x != y),
    }
    return tuple((name, count) for name, chosen in kinds.items() if (count := int(chosen.sum())))


def _reasons(
    specs: tuple[GemmSpec, GemmSpec],
    operands: tuple[Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    first: Difference | None,
) -> Iterator[str]:
    """Why there is NaN: what both specs were given, then of each spec what its casts or its sum made of it."""
    if not any(bool(result.isnan().any()) for result in results):
        return
    given = [(name, int((~x.isfinite()).sum())) for name, x in zip("ab", operands, strict=True)]
    yield from (f"{count} elements of {name} are NaN or infinite as given" for name, count in given if count)
    for word, spec, result in zip(("first", "second"), specs, results, strict=True):
        if not bool(result.isnan().any()):
            continue
        lost = [
            (name, cast, *found)
            for name, x, cast in (("a", operands[0], spec.cast_a), ("b", operands[1], spec.cast_b))
            if cast is not None and any(found := _lost(x, cast))
        ]
        for name, cast, count, kind, largest in lost:
            yield (
                f"{word}: {count} of {operands['ab'.index(name)].numel()} elements of {name} (up to {largest:g}) "
                f"overflow {cast.format}, whose largest is {cast.format.max:g}, to {kind}"
            )
        if lost:
            saturating = _saturating(spec)
            instead = f", or have them saturate: {str(saturating)!r}" if saturating else ""
            yield f"{word}: scale the operands{instead}"
        elif first is not None and not any(count for _, count in given):
            yield from _overflow_of_sum(word, first.trace_a if word == "first" else first.trace_b)


def _lost(x: Tensor, cast: Cast) -> tuple[int, str, float]:
    """Of the finite elements of ``x`` that the cast made NaN or infinite: how many, which of both, the largest; 0, ""
    and 0.0 where none was, or where the cast is rounded at random or of a format that this cannot be asked of."""
    if cast.is_stochastic or not hasattr(cast.format, "max"):
        return 0, "", 0.0
    rounded = gs.quantize(x, cast)
    broken = x.isfinite() & ~rounded.isfinite() & (x.abs() >= float(cast.format.max))
    if not bool(broken.any()):
        return 0, "", 0.0
    return int(broken.sum()), "NaN" if bool(rounded[broken].isnan().all()) else "infinity", float(x[broken].abs().max())


def _saturating(spec: GemmSpec) -> GemmSpec | None:
    """``spec`` with saturating casts of its operands; None where their formats have an overflow of their own."""
    try:
        a, b = (replace(x, overflow=Overflow.SATURATE) if isinstance(x, Cast) else x for x in (spec.a, spec.b))
        return replace(spec, a=a, b=b)
    except (FormatError, SpecError):
        return None


def _overflow_of_sum(word: str, trace: gs.Trace | None) -> Iterator[str]:
    """The first step of a traced NaN that left the finite numbers."""
    if trace is None or not math.isnan(trace.value):
        return
    step = next((s for s in trace.steps if isinstance(s.value, float) and not math.isfinite(s.value)), None)
    if step is not None:
        k = "" if step.k is None else f" at k = {step.k}"
        yield f"{word}: the sum of {list(trace.at)} leaves the finite numbers{k}: {step}"


def _difference(
    specs: tuple[GemmSpec, GemmSpec],
    operands: tuple[Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    flat: int,
    seed: int,
    trace: bool,
) -> Difference:
    """What both specs gave for the element ``flat`` of the results and, with ``trace``, how."""
    x, y = results
    at = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), x.shape)) if x.dim() else ()
    values = float(x.flatten()[flat]), float(y.flatten()[flat])
    if not trace:
        return Difference(at, *values, None, None, None)
    traces = [gs.trace(*operands, spec, at=at, seed=seed) for spec in specs]
    return Difference(at, *values, traces[0], traces[1], _parting(traces[0].steps, traces[1].steps))


def _parting(one: Sequence[Any], other: Sequence[Any]) -> int | None:
    """Index of the first step that both have, of one kind and term, with another value."""
    for index, (p, q) in enumerate(zip(one, other, strict=False)):
        if (p.kind, p.k) != (q.kind, q.k):
            return None
        if not _equal(p.value, q.value) or (p.kind == "operands" and p.text != q.text):
            return index
    return None


def _place(steps: Sequence[Any], index: int) -> str:
    """The step as a user counts: by its term, or by the terms that one instruction adds."""
    terms: list[int] = []
    for step in reversed(steps[:index]):
        if step.kind != "product":
            break
        terms.append(step.k)
    if steps[index].k is None and terms:
        return f"the step that adds the terms {min(terms)} to {max(terms)}"
    return f"step {index + 1}" + ("" if steps[index].k is None else f", k = {steps[index].k}")


def _equal(p: Fraction | float, q: Fraction | float) -> bool:
    if isinstance(p, float) and isinstance(q, float):
        return (math.isnan(p) and math.isnan(q)) or (p == q and math.copysign(1.0, p) == math.copysign(1.0, q))
    return p == q
