"""One element of a product, told step by step: what was multiplied, rounded and added, to what value."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .._html import html_table
from .._keywords import takes_spec
from ..arithmetic import GemmSpec, SpecError, SpecLike
from ..formats import Cast, parse_scalar
from .dyadic import Value, to_float
from .gemm import element
from .philox import Site
from .quantize import quantize

__all__ = ["Trace", "TraceStep", "trace"]

_DTYPES = ("float32", "float64", "float16", "bfloat16")
#: Steps that ``str`` shows of a long trace, at both ends.
_FIRST, _LAST = 40, 12
#: A float that Python writes with ".0".
_WHOLE = re.compile(r"(?<![\w.])(-?\d+)\.0(?![\w.])")


@dataclass(frozen=True)
class TraceStep:
    """One step.

    Attributes:
        kind: "operands" (cast, as multiplied), "product", "shift", "add", "instruction", "step" (of a ``Custom``
            accumulator: its new state, or the first of several), "register" (of such an accumulator), "combine"
            (partial sums of chunks), "order", "output" (the spec's output cast) or "result" (the result's dtype).
        run: the chunks that contain this step, outermost first; empty without chunks.
        k: the term; None for a step without a term or with several.
        text: the operation with its numbers.
        exact: its result before any rounding; a float for -0, infinities and NaN.
        value: the rounded result; a Fraction where an exact sum is held in more bits than float64 has.
        cast: the cast that rounded it; None for an exact step and for an instruction, which has its own rule.
        whole: whether it is of an integer accumulator, whose numbers are shown as integers.

    Example:
        >>> step = gs.trace([1.0, 2.0], [0.1, 3.0], ":fp16").steps[1]
        >>> step.kind, step.k, step.text, step.value, step.cast, step.is_rounded
        ('add', 0, '0.0 + 0.1', 0.0999755859375, 'e5m10', True)
    """

    kind: str
    run: tuple[str, ...]
    k: int | None
    text: str
    exact: Fraction | float
    value: Fraction | float
    cast: str | None
    whole: bool = False

    @property
    def is_rounded(self) -> bool:
        """Whether the value differs from the exact result."""
        return not _same(self.exact, self.value)

    def columns(self) -> tuple[str, str, str, str]:
        """The operation, its exact result where it was rounded, its value, and to what it was rounded; as texts."""
        if self.kind in ("operands", "order"):
            return self.text, "", "", ""
        exact = _number(self.exact, self.whole) if self.is_rounded else ""
        return self.text, exact, _number(self.value, self.whole), (self.cast or "") if self.is_rounded else ""

    def __str__(self) -> str:
        if self.kind in ("operands", "order"):
            return f"{self.kind:11} {self.text}"
        how = f"  ({'to ' if self.is_rounded else 'exact in '}{self.cast})" if self.cast else ""
        between = f" = {_number(self.exact, self.whole)} -> " if self.is_rounded else " = "
        return f"{self.kind:11} {self.text}{between}{_number(self.value, self.whole)}{how}"


@dataclass(frozen=True)
class Trace:
    """All steps of one element; the last one's value is the element of ``qmatmul``, bit for bit.

    ``value``: that value. ``exact``: the sum of the exact products of the cast operands, without any rounding; None
    where one of them is not finite, or in block formats with scales apart. ``at``: the element's index in the result.

    Example:
        >>> found = gs.trace([1.0, 2.0], [0.1, 3.0], ":fp16")
        >>> found.value, float(found.exact), found.roundings
        (6.1015625, 6.1, 2)
    """

    spec: str
    at: tuple[int, ...]
    steps: tuple[TraceStep, ...]
    exact: Fraction | None

    @property
    def value(self) -> float:
        """The element of the product."""
        return float(self.steps[-1].value)

    @property
    def roundings(self) -> int:
        """How many steps changed a value, without those of the operands."""
        return sum(step.is_rounded for step in self.steps if step.kind not in ("operands", "order"))

    def to_dict(self) -> dict[str, object]:
        """The trace as a plain dictionary, for JSON. Exact numbers are texts, and so are infinities and NaN.

        Example:
            >>> list(gs.trace([1.0, 2.0], [0.1, 3.0], ":fp16").to_dict())
            ['spec', 'at', 'value', 'exact', 'steps']
        """
        return {
            "spec": self.spec,
            "at": list(self.at),
            "value": _plain(self.value),
            "exact": None if self.exact is None else str(self.exact),
            "steps": [
                {
                    "kind": step.kind,
                    "run": list(step.run),
                    "k": step.k,
                    "text": step.text,
                    "exact": str(step.exact),
                    "value": _plain(step.value),
                    "cast": step.cast,
                }
                for step in self.steps
            ],
        }

    def __str__(self) -> str:
        where = f", element {list(self.at)}" if self.at else ""
        lines = [f"{self.spec}{where}: {self._counts()}"]
        left_out = len(self.steps) - _FIRST - _LAST
        run: tuple[str, ...] = ()
        for index, step in enumerate(self.steps):
            if left_out > 0 and _FIRST <= index < _FIRST + left_out:
                if index == _FIRST:
                    lines.append(f"  ... {left_out} steps ...")
                continue
            if step.run != run:
                run = step.run
                lines.append(f"  {'  '.join(run)}:" if run else "  all terms:")
            k = "" if step.k is None else f"k = {step.k}"
            lines.append(f"  {k:8} {step}")
        if self.exact is not None:
            lines.append(f"  exact    {_number(self.exact, self.steps[-1].whole)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        where = f", element {list(self.at)}" if self.at else ""
        title = f"{self.spec}{where}: {self._counts()}"
        rows = [(" ".join(s.run), "" if s.k is None else str(s.k), s.kind, *s.columns()) for s in self.steps]
        left_out = max(len(rows) - _FIRST - _LAST, 0)
        if left_out:
            rows[_FIRST : _FIRST + left_out] = [("", "", "", f"... {left_out} steps ...", "", "", "")]
        notes = [] if self.exact is None else [f"exact: {_number(self.exact, self.steps[-1].whole)}"]
        heads = ("part", "k", "step", "operation", "exact", "value", "rounded to")
        return html_table(heads, rows, caption=title, notes=notes)

    def _counts(self) -> str:
        apart = ", operands not counted" if any(step.kind == "operands" for step in self.steps) else ""
        return f"{len(self.steps)} steps, {self.roundings} of them rounded{apart}"

    def __repr__(self) -> str:
        return f"<Trace of {self.spec!r} at {list(self.at)}: {len(self.steps)} steps to {self.value!r}>"


@takes_spec()
def trace(
    a: Any,
    b: Any,
    spec: SpecLike | None = None,
    *,
    at: Sequence[int] | None = None,
    seed: int = 0,
    c: Any = None,
    select: Any = None,
) -> Trace:
    """Each step of one element of ``qmatmul(a, b, spec, seed=seed, c=c, select=select)``.

    Args:
        a, b: as ``qmatmul``: vectors, matrices, and batches that broadcast; tensors, arrays or nested lists.
        at: index of the element in the result; by default the first. Negative numbers count from the end.
        seed: seed of the random bits, unless the spec fixes one.
        c, select: as ``qmatmul``.

    The reference computes it in exact integers, about a microsecond per digit: seconds for K = 100,000. The last step's
    value is the element that ``qmatmul`` gives, bit for bit, in its dtype (for lists: float32).

    Raises:
        SpecError: for a spec that means nothing, for None, and for ``QAffineFormats``, which are several.
        ValueError, IndexError: for shapes that do not fit and an index out of range.

    Example:
        >>> print(gs.trace([1.0, 2.0], [0.1, 3.0], ":fp16"))
        :e5m10: 5 steps, 2 of them rounded
          k = 0    product     1.0 * 0.1 = 0.1
          k = 0    add         0.0 + 0.1 = 0.1 -> 0.0999755859375  (to e5m10)
          k = 1    product     2.0 * 3.0 = 6.0
          k = 1    add         0.0999755859375 + 6.0 = 6.0999755859375 -> 6.1015625  (to e5m10)
                   result      6.1015625 = 6.1015625  (exact in float32)
          exact    219775661815680205 * 2^-55
    """
    if spec is None:
        raise SpecError("trace without a spec; allowed: a spec.\n  PyTorch's native products have no steps to show.")
    meaning = GemmSpec.of(spec)
    left, right = _Operand(a, "a", 0), _Operand(b, "b", 1)
    batch = _broadcast(left.batch, right.batch)
    shape = (*batch, *left.outer, *right.outer)
    index = _index(at, shape)
    place = index[: len(batch)]
    i = index[len(batch)] if left.outer else 0
    j = index[-1] if right.outer else 0
    flat = 0
    for position, size in zip(place, batch, strict=True):
        flat = flat * size + position
    rows, a_start = left.matrix(place)
    columns, b_start = right.matrix(place)
    recorder = _Recorder(rows, columns, i, j, meaning.accumulator.integer_operands)
    value = element(
        rows,
        columns,
        meaning,
        (i, j),
        recorder,
        seed,
        _matrix_of(c, shape, place, left, right, len(rows), len(columns[0]) if columns else 1),
        select=_matrix_of(select, shape, place, left, right, len(rows), len(columns[0]) if columns else 1),
        row0=flat * len(rows),
        a_start=a_start,
        b_start=b_start,
    )
    finish = _Finish(recorder, meaning, seed if meaning.fixed_seed is None else meaning.fixed_seed)
    finish.cast(value, meaning.out, (flat * len(rows) + i) * (shape[-1] if right.outer else 1) + j)
    finish.store(_dtype(left.dtype, right.dtype))
    return Trace(meaning.key, index, tuple(_beside_their_sums(recorder.steps)), recorder.exact_sum())


def _beside_their_sums(steps: Sequence[TraceStep]) -> Iterator[TraceStep]:
    """The steps with each product, and its shift, right before it is first added, where that step names its term."""
    waiting: dict[int | None, list[TraceStep]] = {}
    run: tuple[str, ...] = ()
    for step in steps:
        if step.run != run or (step.k is None and step.kind != "order"):
            yield from itertools.chain(*waiting.values())
            waiting, run = {}, step.run
        if step.kind in ("product", "shift"):
            waiting.setdefault(step.k, []).append(step)
            continue
        yield from waiting.pop(step.k, ())
        yield step
    yield from itertools.chain(*waiting.values())


class _Operand:
    """An operand as matrices of nested lists, and where in it each matrix starts."""

    def __init__(self, x: Any, name: str, side: int) -> None:
        if x is None:
            raise ValueError(f"trace: {name} is None; allowed: a tensor, array or nested list.\n  Give {name}.")
        self.dtype = str(getattr(x, "dtype", "float32")).removeprefix("torch.")
        if self.dtype.startswith("float8"):
            x = x.detach().float()  # these have no lists
        self.nested = x.detach().cpu().tolist() if hasattr(x, "detach") else x.tolist() if hasattr(x, "tolist") else x
        shape = tuple(x.shape) if hasattr(x, "shape") else _shape(self.nested)
        if not shape:
            raise ValueError(f"trace: {name} is a number; allowed: vectors, matrices, batches.\n  Give a vector.")
        self.is_vector = len(shape) == 1
        #: The dimension of the result that this operand brings, none for a vector.
        self.outer = () if self.is_vector else (shape[-2] if side == 0 else shape[-1],)
        self.batch = shape[:-2]
        self.shape, self.side = shape, side

    def matrix(self, place: Sequence[int]) -> tuple[list[list[float]], int]:
        """The matrix at that place of the broadcast batch, and its first element's row-major index."""
        if self.is_vector:
            return ([self.nested] if self.side == 0 else [[x] for x in self.nested]), 0
        found, flat = self.nested, 0
        own = place[len(place) - len(self.batch) :]
        for position, size in zip(own, self.batch, strict=True):
            chosen = 0 if size == 1 else position
            found, flat = found[chosen], flat * size + chosen
        return found, flat * self.shape[-2] * self.shape[-1]


class _Recorder:
    """The log of an element: steps with their numbers in words."""

    def __init__(self, rows: list[list[float]], columns: list[list[float]], i: int, j: int, whole: bool) -> None:
        self.steps: list[TraceStep] = []
        self.whole = whole
        self._given = [(float(x), float(row[j])) for x, row in zip(rows[i], columns, strict=False)] if rows else []
        self._products: list[Fraction | float] = []

    def __call__(
        self, kind: str, k: int | None, formula: str, given: Sequence[Value], exact: Value, value: Value,
        cast: Cast | None, unit: int, run: tuple[str, ...],
    ) -> None:  # fmt: skip
        if kind == "operands":
            assert k is not None
            x, y = self._given[k]
            if formula == f"a = {x!r}, b = {y!r}":
                return  # as given
            formula = f"{formula}, from {x!r} and {y!r}"
        elif kind == "product":
            self._products.append(_exact(exact, unit))
        text = formula.format(*(_number(_held(x, unit), self.whole) for x in given)) if given else formula
        name = None if cast is None else str(cast)
        text = self.written(text or "total")
        step = TraceStep(kind, run, k, text, _exact(exact, unit), _held(value, unit), name, self.whole)
        self.steps.append(step)

    def written(self, text: str) -> str:
        """``text`` with integers where the accumulator's numbers are: "3 * -2" for "3.0 * -2.0"."""
        if not self.whole:
            return text
        numbers, given, before = text.partition(", from ")
        return _WHOLE.sub(r"\1", numbers) + given + before

    def exact_sum(self) -> Fraction | None:
        """Of the products, where all were told and finite."""
        finite = [Fraction(x) for x in self._products if isinstance(x, Fraction) or x == 0]
        return sum(finite, Fraction(0)) if len(finite) == len(self._given) else None


class _Finish:
    """What happens to the accumulator's value: the output cast, and the result's dtype."""

    def __init__(self, recorder: _Recorder, spec: GemmSpec, seed: int) -> None:
        self.recorder, self.spec, self.seed = recorder, spec, seed
        self.value = 0.0

    def cast(self, value: float, out: Cast | None, start: int) -> None:
        """The spec's output cast of the element with that row-major index."""
        self.value = value
        if out is not None:
            ((self.value,),) = quantize([[value]], out, self.seed, Site.OUT, start)
            self._add("output", f"{value!r}", value, str(out))

    def store(self, dtype: str) -> None:
        """Rounding to the dtype of the result, to nearest even."""
        before = self.value
        ((self.value,),) = quantize([[before]], Cast(parse_scalar(dtype)))
        self._add("result", f"{before!r}", before, dtype)

    def _add(self, kind: str, text: str, before: float, cast: str) -> None:
        exact = Fraction(before) if math.isfinite(before) and (before or math.copysign(1.0, before) > 0) else before
        whole = self.recorder.whole
        self.recorder.steps.append(
            TraceStep(kind, (), None, self.recorder.written(text), exact, self.value, cast, whole)
        )


def _plain(x: Fraction | float) -> float | str:
    return x if isinstance(x, float) and math.isfinite(x) else str(x)


def _exact(x: Value, unit: int) -> Fraction | float:
    return Fraction(x) * Fraction(2) ** unit if type(x) is int else float(x)


def _held(x: Value, unit: int) -> Fraction | float:
    """``x`` as a float where float64 holds it."""
    found, exact = to_float(x, unit), _exact(x, unit)
    return found if _same(exact, found) else exact


def _same(exact: Fraction | float, value: Fraction | float) -> bool:
    if isinstance(exact, Fraction):
        return isinstance(value, Fraction) and value == exact or math.isfinite(value) and Fraction(value) == exact
    return (exact != exact and value != value) or exact == value


def _number(x: Fraction | float, whole: bool = False) -> str:
    """A decimal where it is short, else an odd integer times a power of two; ``whole``: integers as integers."""
    if whole and math.isfinite(x) and x == int(x):
        return str(int(x))
    if isinstance(x, float):
        return repr(x)
    try:
        text = repr(float(x))
        if Fraction(float(x)) == x:
            return text
    except OverflowError:
        pass
    odd, power = x.numerator, -(x.denominator.bit_length() - 1)
    while odd and odd % 2 == 0:
        odd, power = odd // 2, power + 1
    return f"{odd} * 2^{power}"


def _shape(nested: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(nested, (list, tuple)):
        shape.append(len(nested))
        if not nested:
            break
        nested = nested[0]
    return tuple(shape)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = (*[1] * (rank - len(a)), *a), (*[1] * (rank - len(b)), *b)
    if any(x != y and 1 not in (x, y) for x, y in zip(left, right, strict=True)):
        raise ValueError(f"trace: batches {tuple(a)} and {tuple(b)}; allowed: ones that broadcast.\n  Expand one.")
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def _index(at: Sequence[int] | None, shape: Sequence[int]) -> tuple[int, ...]:
    given = [0] * len(shape) if at is None else list(at) if isinstance(at, (list, tuple)) else [at]
    if len(given) != len(shape) or any(not -n <= i < n for i, n in zip(given, shape, strict=True)):
        raise IndexError(f"trace: at={at!r} of a result {tuple(shape)}; allowed: an index of one element.\n  Give at.")
    return tuple(i % n for i, n in zip(given, shape, strict=True))


def _matrix_of(
    x: Any, shape: Sequence[int], place: Sequence[int], left: _Operand, right: _Operand, m: int, n: int
) -> list[list[float]] | None:
    """``c`` or ``select``, which broadcasts to the result: the matrix at that place."""
    if x is None:
        return None
    nested = x.detach().cpu().tolist() if hasattr(x, "detach") else x.tolist() if hasattr(x, "tolist") else x
    own = _shape(nested)

    def pick(i: int, j: int) -> float:
        index = [*place, *([i] if left.outer else []), *([j] if right.outer else [])]
        found, sizes = nested, own
        for position, size in zip(index[len(index) - len(sizes) :], sizes, strict=True):
            found = found[0 if size == 1 else position]
        return float(found)

    return [[pick(i, j) for j in range(n)] for i in range(m)]


def _dtype(a: str, b: str) -> str:
    """The dtype that ``qmatmul`` gives of these."""
    names = [name if name in _DTYPES else "float32" for name in (a, b)]
    if names[0] == names[1]:
        return names[0]
    return "float64" if "float64" in names else "float32"
