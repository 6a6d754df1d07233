"""Matrix products by definition: exact integers, one output element after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arithmetic import Accumulator, GemmSpec, Sequential, SpecError, SpecLike, UnsupportedSpec
from ..formats import FP32, Cast
from .dyadic import Value, add, lowest_exponent, multiply, to_float, to_units
from .philox import Site, step_draws
from .quantize import quantize
from .rounding import Rounder, rounder

__all__ = ["Dot", "gemm", "implements"]

Matrix = list[list[float]]


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

    def exact(self, x: Value) -> Value:
        """``x`` as the arithmetic delivers it: itself, or rounded to binary32."""
        return x if self.carrier is None else self.carrier(x)

    def rounder(self, cast: Cast) -> Rounder:
        """Rounding to ``cast`` of numbers in this element's units."""
        return rounder(cast, self.unit)

    def draws(self, cast: Cast, start: int, stop: int, site: int) -> Sequence[int]:
        """Random draws of ``cast`` for the steps ``start <= k < stop``; zeros where it needs none."""
        if not cast.is_stochastic:
            return [0] * (stop - start)
        return step_draws(self.seed, self.row, self.col, start, stop, site, cast.rounding.bits)


#: How each accumulator turns the products of an element into its value.
_METHODS: dict[type[Accumulator], Callable[[Any, Dot], Value]] = {}


def implements(kind: type[Accumulator]) -> Callable[[Callable[[Any, Dot], Value]], Callable[[Any, Dot], Value]]:
    """Decorator: the function ``(accumulator, dot) -> value`` is the meaning of accumulators of class ``kind``."""

    def enter(method: Callable[[Any, Dot], Value]) -> Callable[[Any, Dot], Value]:
        _METHODS[kind] = method
        return method

    return enter


def gemm(
    a: Any,
    b: Any,
    spec: SpecLike,
    seed: int = 0,
    c: Any = None,
    *,
    row0: int = 0,
    a_start: int | None = None,
    b_start: int = 0,
) -> Matrix:
    """The matrix product of ``a`` (M, K) and ``b`` (K, N) that ``spec`` means, as nested lists of floats.

    Operands are cast first, the result is cast to ``spec.out`` last; a product with K = 0 is +0 (or C).
    A NaN result is the positive quiet NaN. Only the conversion to the output tensor's dtype is left to the caller.

    Args:
        a, b, c: nested lists or arrays of numbers; c (M, N) for accumulators with ``init`` "c_first" or "c_last".
        seed: seed of the random bits, unless the spec fixes one.
        row0: index of a's first row among all rows of the batched product; its random bits depend on it.
        a_start, b_start: row-major index of the first element of a and b in the tensors they are taken from, for
            stochastic operand casts. Default: ``row0 * K`` and 0.

    Raises:
        ValueError: for shapes that do not fit.
        SpecError: for a C that the spec has no place for.
        UnsupportedSpec: for an accumulator without a reference.
    """
    spec = GemmSpec.of(spec)
    rows, columns = _matrix(a, "a"), _matrix(b, "b")
    m, k, n = len(rows), len(columns), len(columns[0]) if columns else _width(b)
    if any(len(row) != k for row in rows) or any(len(row) != n for row in columns):
        width = len(rows[0]) if rows else k
        raise ValueError(f"gemm of a ({m}, {width}) and b ({k}, {n}); allowed: (M, K) and (K, N).\n  Transpose one.")
    method = _METHODS.get(type(spec.accumulator))
    if method is None:
        raise UnsupportedSpec(
            f"reference has no {type(spec.accumulator).__name__}; allowed: {_known()}.\n  Use one of them."
        )
    addend = _addend(spec, c, m, n)
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    rows = _cast(rows, spec.a, seed, Site.OPERAND_A, row0 * k if a_start is None else a_start)
    columns = _cast(columns, spec.b, seed, Site.OPERAND_B, b_start)
    if spec.arithmetic == "fp32":
        rows, columns = quantize(rows, FP32), quantize(columns, FP32)
        addend = None if addend is None else quantize(addend, FP32)
    result = _products(method, spec, rows, columns, addend, (m, n), seed, row0)
    return _cast(result, spec.out, seed, Site.OUT, row0 * n)


def _products(
    method: Callable[[Any, Dot], Value],
    spec: GemmSpec,
    rows: Matrix,
    columns: Matrix,
    addend: Matrix | None,
    shape: tuple[int, int],
    seed: int,
    row0: int,
) -> Matrix:
    """Every element, all in one unit: the largest of which all operands' products and every grid are multiples."""
    unit_b = lowest_exponent(x for row in columns for x in row)
    unit = lowest_exponent(x for row in rows for x in row) + unit_b
    grids = [step.format.quantum_exponent for step in spec.accumulator.casts()]
    if addend is not None:
        grids.append(lowest_exponent((x for row in addend for x in row), unit))
    carrier = None
    if spec.arithmetic == "fp32":
        grids.append(FP32.quantum_exponent)
    unit = min(unit, *grids)
    if spec.arithmetic == "fp32":
        carrier = rounder(Cast(FP32), unit)
    m, n = shape
    # a carries what of the unit b does not, so that products come out in units.
    left = [[to_units(x, unit - unit_b) for x in row] for row in rows]
    right = [[to_units(row[j], unit_b) for row in columns] for j in range(n)]
    result = []
    for i in range(m):
        line = []
        for j in range(n):
            products = [multiply(x, y) for x, y in zip(left[i], right[j], strict=True)]
            start = None if addend is None else to_units(addend[i][j], unit)
            dot = Dot(products, start, unit, carrier, seed, row0 + i, j)
            line.append(to_float(method(spec.accumulator, dot), unit))
        result.append(line)
    return result


@implements(Sequential)
def _sequential(accumulator: Sequential, dot: Dot) -> Value:
    """s = R_add(s + q_k) for k ascending, with q_k = p_k or R_mul(p_k)."""
    length = len(dot.products)
    terms = dot.products
    if accumulator.mul is not None:
        round_mul = dot.rounder(accumulator.mul)
        draws = dot.draws(accumulator.mul, 0, length, Site.PRODUCT)
        terms = [round_mul(dot.exact(p), R) for p, R in zip(terms, draws, strict=True)]
    s: Value = 0
    if dot.addend is not None:
        if accumulator.init == "c_first":
            s = dot.addend
        else:
            # One more step, k = K, whose term is C as it is.
            terms = [*terms, dot.addend]
    round_add = dot.rounder(accumulator.add)
    draws = dot.draws(accumulator.add, 0, len(terms), Site.ADD)
    for q, R in zip(terms, draws, strict=True):
        total = s + q if type(s) is int and type(q) is int else add(s, q)
        s = round_add(dot.exact(total), R)
    return s


def _known() -> str:
    return ", ".join(sorted(kind.name for kind in _METHODS))


def _cast(matrix: Matrix, cast: Cast | None, seed: int, site: int, start: int) -> Matrix:
    if cast is None:
        return matrix
    result: Matrix = quantize(matrix, cast, seed, site, start)
    return result


def _matrix(values: Any, name: str) -> Matrix:
    nested = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(nested, (list, tuple)) or any(not isinstance(row, (list, tuple)) for row in nested):
        raise ValueError(
            f"gemm: {name} is not a matrix; allowed: a list of rows, or a 2-D array.\n  Give one row as [[...]]."
        )
    return [[float(x) for x in row] for row in nested]


def _width(b: Any) -> int:
    """N of a b with K = 0, which nested lists cannot tell: from the array's shape, else 0."""
    return int(b.shape[1]) if hasattr(b, "shape") else 0


def _addend(spec: GemmSpec, c: Any, m: int, n: int) -> Matrix | None:
    if c is None:
        return None
    if getattr(spec.accumulator, "init", "zero") == "zero":
        raise SpecError(
            f"gemm with c and {spec}; allowed: init=c_first or init=c_last.\n  Say where C enters, or drop c."
        )
    addend = _matrix(c, "c")
    if len(addend) != m or any(len(row) != n for row in addend):
        raise ValueError(f"gemm: c is not ({m}, {n}); allowed: the shape of the result.\n  Broadcast it first.")
    return addend
