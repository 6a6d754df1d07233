"""Operands that test the corner cases of a product: extremes, alternating signs, overflow, recovery from it, ties."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import Accumulator, Chunked, Fixed, Integer, Lookup, Promote, Sequential
from gemmsim.formats import Cast, FormatError

from .errors import vectors_error
from .levels import Level, levels_of, overflowing
from .operands import Numbers, format_of_side, numbers_of
from .recovery import recovery

__all__ = ["CASES", "Directed", "directed_cases"]

CASES = ("extremes", "alternating", "overflow", "recover", "ties")
#: Ties that are looked for at most, and numbers of each operand that they are made of.
_TIES, _NUMBERS = 8, 24


@dataclass(frozen=True)
class Directed:
    """One test case.

    Attributes:
        name: "extremes", "alternating", "overflow", "recover" or "ties".
        about: a description of the operands, or why there are none.
        a, b: float64 (M, K) and (K, N), in the operands' formats; None where the spec has no such case.

    Example:
        >>> [case.name for case in gs.vectors.directed_cases("int8 : int(18)", 8)]
        ['extremes', 'alternating', 'overflow', 'recover', 'ties']
    """

    name: str
    about: str
    a: Tensor | None = None
    b: Tensor | None = None


@takes_spec()
def directed_cases(spec: Any, terms: int) -> list[Directed]:
    """Operands of ``terms`` terms that test the corner cases of ``spec``: always all five cases, some without operands.

    * extremes: each row of a is one number (largest, lowest, smallest magnitude of either sign, zero) and so is each
      column of b, so that every pair of numbers is multiplied.
    * alternating: products change their sign at every term, at full size and falling. The signs are in a, or in b if
      a is unsigned. If both are unsigned, a is its largest number and zero in turn.
    * overflow: the running sum first overflows at a stated step, after zeros: as early as possible, in the middle and
      at the last step, on either side.
    * recover: the sum leaves the range of an accumulator and then comes back by more than the excess, at either end
      and at each level of chunks. An accumulator that stays saturated, or that is limited only when it is read, gives
      another result.
    * ties: a sum, or a product where products are rounded, that lies half-way between two neighbours of the
      accumulator's format.

    Raises:
        VectorsError: for operands in block formats, or ``terms`` below 1.
        SpecError: for a spec that means nothing.

    Example:
        >>> extremes = gs.vectors.directed_cases("int8 : int(18)", 4)[0]
        >>> extremes.a[:, 0].tolist(), gs.count_overflows(extremes.a, extremes.b, "int8 : int(18)").sum()
        ([127.0, -128.0, 1.0, -1.0, 0.0], tensor(0))
    """
    meaning = gs.GemmSpec.of(spec)
    if isinstance(terms, bool) or not isinstance(terms, int) or terms < 1:
        raise vectors_error(f"directed cases of terms={terms!r}", "an integer from 1", "Give the number of terms, K.")
    a, b = (numbers_of(meaning, side) for side in (0, 1))
    return [
        _extremes(a, b, terms),
        _alternating(a, b, terms),
        _overflow(a, b, terms, meaning),
        Directed("recover", *recovery(a, b, terms, meaning)),
        _ties(meaning, terms),
    ]


def _extremes(a: Numbers, b: Numbers, terms: int) -> Directed:
    left, right = (list(dict.fromkeys((x.most, x.least, x.small, max(x.least, -x.small), 0.0))) for x in (a, b))
    rows = torch.tensor(left, dtype=torch.float64)[:, None].expand(-1, terms)
    columns = torch.tensor(right, dtype=torch.float64)[None].expand(terms, -1)
    about = f"rows of a: {left}; columns of b: {right}; the same number in every term"
    return Directed("extremes", about, rows.contiguous(), columns.contiguous())


def _alternating(a: Numbers, b: Numbers, terms: int) -> Directed:
    turning, other = (b, a) if a.least >= 0 > b.least else (a, b)
    k = torch.arange(terms)
    even = k % 2 == 0
    most, least = torch.tensor(turning.most, dtype=torch.float64), torch.tensor(turning.least, dtype=torch.float64)
    first = torch.where(even, most, least)
    falling = gs.quantize(first * (1 - k / terms), turning.format)  # sums of both signs cancel less and less
    signs = torch.stack([first, torch.where(even, least, most), falling])
    constants = [one for one in (other.most, other.least) if one]
    constant = torch.tensor(constants, dtype=torch.float64)[:, None].expand(-1, terms).contiguous()
    changing, same = ("columns of b", "rows of a") if turning is b else ("rows of a", "columns of b")
    about = (
        f"{changing}: {turning.most} and {turning.least} in turn, the other way round, and the first one falling to 0; "
        f"{same}: {', '.join(map(str, constants))}{'' if turning.least < 0 else '; no product is negative'}"
    )
    left, right = (constant, signs.T.contiguous()) if turning is b else (signs, constant.T.contiguous())
    return Directed("alternating", about, left, right)


def _overflow(a: Numbers, b: Numbers, terms: int, spec: gs.GemmSpec) -> Directed:
    leaves = _leaves(spec)
    if leaves is None:
        return Directed("overflow", f"none: overflows of {spec.accumulator} are not counted step by step")
    columns = torch.tensor([b.most, b.least], dtype=torch.float64).expand(terms, 2)
    lowest = (a.most, 1) if a.most * b.least <= a.least * b.most else (a.least, 0)
    levels, rows, said = levels_of(spec, terms), [], []
    for side, (value, at_column) in (("above", (a.most, 0)), ("below", lowest)):
        column = columns[:, at_column : at_column + 1]
        row = torch.full((1, terms), value, dtype=torch.float64)
        first = _first(leaves, row, column)
        if first is None:
            continue
        for end in sorted({first, (first + terms) // 2, terms}):
            shifted = torch.zeros_like(row)
            shifted[:, end - first : end] = value
            if _first(leaves, shifted, column) == end:  # chunks may begin elsewhere then
                rows.append(shifted)
                said.append(f"{side} at {_place(levels, shifted[:, :end], column[:end])} in column {at_column}")
    if not rows:
        return Directed("overflow", f"none: no sum of {terms} terms in the operands' formats overflows the accumulator")
    counted = "steps" if " at step " in said[0] else "terms"
    about = f"the accumulator overflows {'; '.join(said)}, row by row of a ({counted} count from 0)"
    return Directed("overflow", about, torch.cat(rows), columns.contiguous())


def _place(levels: list[Level], a: Tensor, b: Tensor) -> str:
    """The last term, and the step of the accumulator that overflows with it."""
    last = a.shape[1] - 1
    if not levels or levels[-1].name == "steps":
        return f"step {last}"
    level = overflowing(levels, a, b)
    return f"term {last} ({level.step_words(last)})" if level else f"term {last}"


def _leaves(spec: gs.GemmSpec) -> Callable[[Tensor, Tensor], int] | None:
    """How often an accumulator overflows; None where nothing counts it."""
    inner, _ = _innermost(spec.accumulator, 1)
    if isinstance(inner, Integer) and inner is not spec.accumulator and not isinstance(spec.accumulator, Lookup):
        # Partial sums are saturated by casts, which count_overflows does not count. Sums of one sign show it.
        shift = inner.shift
        exact = dataclasses.replace(spec, accumulator=Integer(53, shift=shift))
        return lambda a, b: int((gs.qmatmul(a, b, spec) != gs.qmatmul(a, b, exact)).sum())
    if spec.accumulator.counts_overflows:
        return lambda a, b: int(gs.count_overflows(a, b, spec).sum())
    try:
        gs.count_events(torch.ones(1, 1), torch.ones(1, 1), spec)
    except (gs.SpecError, gs.UnsupportedSpec):
        return None
    return lambda a, b: int(gs.count_events(a, b, spec).overflow.sum())


def _first(leaves: Callable[[Tensor, Tensor], int], a: Tensor, b: Tensor) -> int | None:
    """The number of terms after which an accumulator first overflows; None if none does."""
    low, high = 0, a.shape[1]
    if not leaves(a, b):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if leaves(a[:, :middle], b[:middle]):
            high = middle
        else:
            low = middle
    return high


def _ties(spec: gs.GemmSpec, terms: int) -> Directed:
    accumulator, run = _innermost(spec.accumulator, terms)
    if isinstance(accumulator, Integer):
        return Directed("ties", "none: integers are not rounded")
    if not isinstance(accumulator, (Sequential, Fixed)):
        return Directed("ties", f"none: {accumulator} is not one accumulator to which products are added")
    per_row = 1 if isinstance(accumulator, Fixed) else 2
    if run < per_row:
        return Directed("ties", "none: chunks have one term each")
    step = run if run < terms else per_row
    try:
        found = list(_found_ties(accumulator, spec))[: min(_TIES, terms // step)]
    except FormatError:  # a format that is not rounded up and down
        found = []
    if not found:
        return Directed("ties", "none: no sum of two products of these formats lies half-way")
    a, b = torch.zeros(len(found), terms, dtype=torch.float64), torch.zeros(terms, 1, dtype=torch.float64)
    for row, pairs in enumerate(found):
        for j, (x, y) in enumerate(pairs):
            a[row, row * step + j], b[row * step + j, 0] = x, y
    about = f"each row of a has one tie, at the last number of it that is not 0, to {accumulator.add_cast}"
    return Directed("ties", about, a, b)


def _innermost(accumulator: Accumulator, terms: int) -> tuple[Accumulator, int]:
    """The accumulator of the terms, and the length of its runs."""
    run = terms
    while isinstance(accumulator, (Chunked, Promote, Lookup)):
        if not isinstance(accumulator, Lookup):
            run = min(run, accumulator.n)
        accumulator = accumulator.inner
    return accumulator, run


def _found_ties(accumulator: Accumulator, spec: gs.GemmSpec) -> Iterator[list[tuple[float, float]]]:
    """Pairs of operands, the last of which brings the register's rounding to a tie; even and odd neighbours in turn."""
    x, y, product = _products(spec)
    if isinstance(accumulator, Fixed):
        assert accumulator.product_cast is not None
        for at in _in_turn(product, accumulator.product_cast.format):
            yield [(float(x[at]), float(y[at]))]
        return
    if accumulator.product_cast is not None:
        product = gs.quantize(product, accumulator.product_cast)
    fmt = accumulator.add_cast.format
    kept = (gs.quantize(product, fmt) == product) & (product != 0)  # what the register holds after the first term
    first = torch.nonzero(kept)[:, 0]
    sums = product[first][:, None] + product
    exact = (sums - product[first][:, None] == product) & (sums - product == product[first][:, None])
    sums = torch.where(exact, sums, torch.zeros(()).double())
    for flat in _in_turn(sums.flatten(), fmt):
        i, j = int(first[flat // len(product)]), flat % len(product)
        yield [(float(x[i]), float(y[i])), (float(x[j]), float(y[j]))]


def _products(spec: gs.GemmSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of operands of moderate size, and their exact products in float64."""
    left, right = (_some(format_of_side(spec, side)) for side in (0, 1))
    x, y = torch.cartesian_prod(left, right).unbind(1)
    return x, y, x * y


def _some(fmt: Any) -> Tensor:
    """Numbers around 1 of both signs: powers of two, and those with one and with all fraction bits set."""
    steps = torch.tensor([2.0**e * f for e in (0, 1, -1, 2, -3, 4, -6) for f in (1.0, 1.5, 1.25, 1.75)])
    fine = torch.tensor([1 + 2.0**-e for e in range(3, 12)])
    positive = gs.quantize(torch.cat([steps, fine]).double(), fmt)
    positive = torch.unique(positive[positive.isfinite() & (positive > 0)])
    positive = positive[torch.argsort((positive.log2()).abs())][:_NUMBERS]
    return torch.cat([positive, -positive]) if float(fmt.min) < 0 else positive


def _in_turn(x: Tensor, fmt: Any) -> list[int]:
    """Places of ties of ``x`` between neighbours in ``fmt``, in turn of either sign, above even and odd ones."""
    down, up = (gs.quantize(x, Cast(fmt, way)) for way in (gs.formats.Rounding.RD, gs.formats.Rounding.RU))
    tie = (down < up) & down.isfinite() & up.isfinite() & (x - down == up - x)
    half = (up - down) / 2
    kind = 2 * (x > 0).long() + (torch.where(half > 0, down / (2 * half), x) % 2 == 0).long()
    groups = [torch.nonzero(tie & (kind == value))[:, 0].tolist() for value in range(4)]
    return [group[n] for n in range(_TIES) for group in groups if n < len(group)]
