"""Matrix products by definition: exact integers, one output element after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ..arithmetic import Accumulator, GemmSpec, Lookup, Palette, SpecError, SpecLike
from ..arithmetic.block_operands import takes_scales
from ..formats import FP32, TENSOR_FORMATS, BlockFormat, Cast, FiniteFloatFormat, ScaledCast, Sharing, TensorFormat
from . import scaled_operands
from .blocked import Blocked, blocked
from .dot import Dot, Log, check_known, total
from .dyadic import lowest_exponent, multiply, to_float, to_units
from .lookup import looked_up
from .philox import Site
from .quantize import quantize
from .rounding import rounder
from .scaled_block import quantize_tensor

__all__ = ["count_overflows", "element", "gemm"]

Matrix = list[list[float]]


def gemm(
    a: Any,
    b: Any,
    spec: SpecLike,
    seed: int = 0,
    c: Any = None,
    *,
    select: Any = None,
    row0: int = 0,
    a_start: int | None = None,
    b_start: int = 0,
) -> Matrix:
    """The matrix product of ``a`` (M, K) and ``b`` (K, N) that ``spec`` means, as nested lists of floats.

    Operands are cast first, and the result is cast to ``spec.out`` last. A product with K = 0 is +0 (or C). A NaN
    result is the positive quiet NaN. Only the conversion to the output tensor's dtype is left to the caller.

    Args:
        a, b: nested lists or arrays of numbers, or ``Blocked``: a's rows, b's columns, in block formats already.
        c: likewise, (M, N), for accumulators with ``init`` "c_first" or "c_last".
        select: nested lists or an array (M, N) of indices into a palette's members.
        seed: seed of the random bits, unless the spec fixes one.
        row0: index of a's first row among all rows of the batched product; its random bits depend on it.
        a_start, b_start: row-major index of the first element of a and b in the tensors they are taken from, for
            stochastic operand casts. Default: ``row0 * K`` and 0.

    Raises:
        ValueError: for shapes that do not fit, a missing or superfluous ``select``, an index outside the palette, or
            operands that are not integers where the accumulator needs them.
        SpecError: for a C that the spec has no place for.
        UnsupportedSpec: for an accumulator without a reference.

    Example:
        >>> gs.reference.gemm([[1.0] * 300], [[1.0]] * 300, "e4m3 : bf16")  # stagnates at 256
        [[256.0]]
        >>> gs.qmatmul(torch.ones(1, 300), torch.ones(300, 1), "e4m3 : bf16").tolist()
        [[256.0]]
    """
    spec = GemmSpec.of(spec)
    if isinstance(spec.a, ScaledCast) or isinstance(spec.b, ScaledCast):
        rows, columns = _matrix(a, "a"), _matrix(b, "b")
        _check_shapes(rows, columns, b)
        found = scaled_operands.multiply(
            rows, columns, spec, seed if spec.fixed_seed is None else spec.fixed_seed, gemm
        )
        return _cast(found, spec.out, seed, Site.OUT, 0)
    work = _prepare(a, b, spec, seed, c, select, _Place(row0, a_start, b_start))
    result = [[to_float(total(which, dot), dot.unit) for which, dot in line] for line in _dots(work)]
    return _cast(result, spec.out, work.seed, Site.OUT, row0 * work.width)


def count_overflows(a: Any, b: Any, spec: SpecLike, seed: int = 0, *, select: Any = None) -> list[list[int]]:
    """How often the ``int`` or ``fixed`` accumulator of each element of the product overflowed.

    Accumulators inside other ones count, casts of partial sums to fixed-point formats do not. Arguments as ``gemm``.
    With ``when="end"`` an accumulator counts at most once. An infinite product is an overflow; an accumulator that is
    NaN does not overflow any more.

    Raises:
        SpecError: for an accumulator that is not ``int`` or ``fixed``.
        ValueError: as ``gemm``.

    Example:
        >>> gs.reference.count_overflows([[100, 100, 100]], [[1], [1], [1]], ":int(8)")
        [[1]]
    """
    spec = GemmSpec.of(spec)
    if not spec.accumulator.counts_overflows:
        raise SpecError(
            f"count_overflows of {spec.accumulator}; allowed: int(...), fixed(...), and accumulators made of them.\n"
            "  Use fixed(bits, frac, rounding=...) for an accumulator that counts overflows."
        )
    counts: list[list[int]] = []
    for line in _dots(_prepare(a, b, spec, seed, None, select, _Place())):
        counts.append([])
        for which, dot in line:
            total(which, dot)
            counts[-1].append(dot.tally.overflows)
    return counts


def element(
    a: Any,
    b: Any,
    spec: GemmSpec,
    at: tuple[int, int],
    log: Log,
    seed: int = 0,
    c: Any = None,
    *,
    select: Any = None,
    row0: int = 0,
    a_start: int | None = None,
    b_start: int = 0,
) -> float:
    """One element of ``gemm``, before the cast to ``spec.out``, telling ``log`` of each step. Arguments as there."""
    i, j = at
    if not (spec.has_blocks or isinstance(a, Blocked) or isinstance(b, Blocked) or _draws_in_operands(spec)):
        return _followed(_alone(a, b, spec, at, seed, c, select, row0), j, log)
    work = _prepare(a, b, spec, seed, c, select, _Place(row0, a_start, b_start))
    columns = [[row[j]] for row in work.columns]
    scales = None if work.scales is None else ([work.scales[0][i]], [work.scales[1][j]])
    addend = None if work.addend is None else [[work.addend[i][j]]]
    chosen = None if work.select is None else [[work.select[i][j]]]
    one = work._replace(
        rows=[work.rows[i]], columns=columns, scales=scales, addend=addend, select=chosen, row0=row0 + i, width=1
    )
    return _followed(one, j, log)


def _draws_in_operands(spec: GemmSpec) -> bool:
    """Whether casts of operands draw random bits, which belong to places in the whole tensors."""
    return any(cast is not None and cast.is_stochastic for cast in (spec.cast_a, spec.cast_b))


def _alone(a: Any, b: Any, spec: GemmSpec, at: tuple[int, int], seed: int, c: Any, select: Any, row0: int) -> _Work:
    """The element ``at`` as a product by itself, where its row of a and its column of b are all it depends on."""
    i, j = at
    rows, columns = _matrix(a, "a"), _matrix(b, "b")
    _check_shapes(rows, columns, b)
    addend = _addend(spec, c, len(rows), len(columns[0]) if columns else _width(b))
    chosen = _select(spec, select, len(rows), len(columns[0]) if columns else _width(b))
    work = _prepare(
        [rows[i]],
        [[row[j]] for row in columns],
        spec,
        seed,
        None if addend is None else [[addend[i][j]]],
        None if chosen is None else [[chosen[i][j]]],
        _Place(row0 + i),
    )
    return work._replace(width=1)


def _followed(one: _Work, column: int, log: Log) -> float:
    """The only element of ``one``, which stands in ``column`` of the product, telling ``log`` of each step."""
    ((which, dot),) = next(_dots(one))
    dot.col, dot.log = column, log
    for k, (x, y) in enumerate(zip(dot.left, dot.right, strict=True)):
        dot.note("operands", f"a = {x!r}, b = {y!r}", (), 0, 0, None, k)
    return to_float(total(which, dot), dot.unit)


class _Place(NamedTuple):
    """Where the given rows and operands stand in a larger product, as ``gemm`` takes it."""

    row0: int = 0
    a_start: int | None = None
    b_start: int = 0


class _Work(NamedTuple):
    """A product after the operand casts, of which each element can be computed by itself."""

    spec: GemmSpec
    rows: Matrix
    columns: Matrix
    addend: Matrix | None
    select: list[list[int]] | None
    seed: int
    row0: int
    width: int
    #: Scales of each row of a and column of b where the elements come without them, and the tensors' own.
    scales: tuple[Matrix, Matrix] | None = None
    tensor_scales: float | None = None


def _prepare(a: Any, b: Any, spec: GemmSpec, seed: int, c: Any, select: Any, place: _Place) -> _Work:
    row0, a_start, b_start = place
    scales, second = None, None
    if isinstance(a, Blocked) or isinstance(b, Blocked) or spec.has_blocks:
        a, b, scales, second = _block_operands(a, b, spec)
    rows, columns = _matrix(a, "a"), _matrix(b, "b")
    m, k, n = _check_shapes(rows, columns, b)
    check_known(spec.accumulator)
    addend = _addend(spec, c, m, n)
    chosen = _select(spec, select, m, n)
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    a_start = row0 * k if a_start is None else a_start
    rows = _cast(rows, spec.cast_a, seed, Site.OPERAND_A, a_start)
    columns = _cast(columns, spec.cast_b, seed, Site.OPERAND_B, b_start)
    if isinstance(spec.a, TENSOR_FORMATS):
        rows = _in_tensor_format(rows, spec.a, 1, seed, Site.OPERAND_A, a_start)
    if isinstance(spec.b, TENSOR_FORMATS):
        columns = _in_tensor_format(columns, spec.b, 0, seed, Site.OPERAND_B, b_start)
    if spec.arithmetic == "fp32":
        rows, columns = quantize(rows, FP32), quantize(columns, FP32)
        addend = None if addend is None else quantize(addend, FP32)
    if spec.accumulator.integer_operands:
        _check_integers(rows, "a", spec)
        _check_integers(columns, "b", spec)
    return _Work(spec, rows, columns, addend, chosen, seed, row0, n, scales, second)


def _check_shapes(rows: Matrix, columns: Matrix, b: Any) -> tuple[int, int, int]:
    """M, K and N of (M, K) and (K, N); ``ValueError`` for other shapes."""
    m, k, n = len(rows), len(columns), len(columns[0]) if columns else _width(b)
    if any(len(row) != k for row in rows) or any(len(row) != n for row in columns):
        width = len(rows[0]) if rows else k
        raise ValueError(f"gemm of a ({m}, {width}) and b ({k}, {n}); allowed: (M, K) and (K, N).\n  Transpose one.")
    return m, k, n


def _dots(work: _Work) -> Iterator[list[tuple[Accumulator, Dot]]]:
    """Every element with its accumulator, row by row, all in one unit: the largest of which all operands' products
    and every grid are multiples."""
    spec, rows, columns, addend = work.spec, work.rows, work.columns, work.addend
    given = [[row[j] for row in columns] for j in range(work.width)]
    table = None
    if isinstance(spec.accumulator, Lookup):
        table = looked_up(spec.accumulator.products, rows, given)
        _check_products(table, spec)
    unit_b = lowest_exponent(x for row in columns for x in row)
    unit = lowest_exponent(x for row in rows for x in row) + unit_b
    if table is not None:
        unit = min(unit, 0, lowest_exponent(x for line in table for terms in line for x in terms))
    grids = list(spec.accumulator.grids())
    if addend is not None:
        grids.append(lowest_exponent((x for row in addend for x in row), unit))
    if spec.arithmetic == "fp32":
        grids.append(FP32.quantum_exponent)
    unit = min(unit, *grids)
    carrier = rounder(Cast(FP32), unit) if spec.arithmetic == "fp32" else None
    # a carries what of the unit b does not, so that products come out in units.
    left = [[to_units(x, unit - unit_b) for x in row] for row in rows]
    right = [[to_units(x, unit_b) for x in column] for column in given]
    for i, row in enumerate(left):
        line = []
        for j, column in enumerate(right):
            products = [multiply(x, y) for x, y in zip(row, column, strict=True)]
            if table is not None:
                products = [to_units(x, unit) for x in table[i][j]]
            start = None if addend is None else to_units(addend[i][j], unit)
            which = spec.accumulator
            if isinstance(which, Palette) and work.select is not None:
                which = which.members[work.select[i][j]]
            dot = Dot(products, start, unit, carrier, work.seed, work.row0 + i, j, rows[i], given[j])
            if work.scales is not None:
                dot.left_scales, dot.right_scales = work.scales[0][i], work.scales[1][j]
                dot.group, dot.tensor_scales = spec.group, work.tensor_scales
                dot.scale_format = next(fmt.scale for fmt in (spec.a, spec.b) if isinstance(fmt, BlockFormat))
            line.append((which, dot))
        yield line


def _check_products(table: list[Matrix], spec: GemmSpec) -> None:
    assert isinstance(spec.accumulator, Lookup)
    if spec.accumulator.inner.integer_operands and any(x != x for line in table for terms in line for x in terms):
        raise ValueError(f"gemm: NaN among the products of {spec}; allowed: integers.\n  Replace it in the operands.")


def _in_tensor_format(matrix: Matrix, fmt: TensorFormat, dim: int, seed: int, site: int, start: int) -> Matrix:
    """An operand in a format of tensors with its blocks along k, which is dimension ``dim``."""
    width = len(matrix[0]) if matrix else 0
    if not isinstance(fmt, FiniteFloatFormat) and fmt.sharing is Sharing.BLOCK:
        fmt = replace(fmt, dim=dim)
    flat = quantize_tensor([x for row in matrix for x in row], (len(matrix), width), fmt, seed, site, start)
    return [flat[i * width : (i + 1) * width] for i in range(len(matrix))]


def _block_operands(a: Any, b: Any, spec: GemmSpec) -> tuple[Any, Any, tuple[Matrix, Matrix] | None, float | None]:
    """Matrices of values, or of elements with the scales of rows and columns and the tensors' own scales."""
    if not isinstance(a, Blocked) and isinstance(spec.a, BlockFormat):
        a = blocked(_matrix(a, "a"), spec.a)
    if not isinstance(b, Blocked) and isinstance(spec.b, BlockFormat):
        b = blocked(_turned(_matrix(b, "b")), spec.b)
    if not takes_scales(spec.accumulator):
        left = a.values() if isinstance(a, Blocked) else a
        return left, _turned(b.values()) if isinstance(b, Blocked) else b, None, None
    rows, columns = _elements(a, False), _elements(b, True)
    factors = (
        a.factors() if isinstance(a, Blocked) else [[1.0] * len(row) for row in rows],
        b.factors() if isinstance(b, Blocked) else [[1.0] * len(column) for column in columns],
    )
    second = None
    for one in (a, b):
        if isinstance(one, Blocked) and one.format.tensor_scale:
            second = one.tensor_scale if second is None else second * one.tensor_scale
    return rows, _turned(columns), factors, second


def _elements(x: Any, columns: bool) -> Matrix:
    """Rows of a, or columns of b, without scales."""
    if isinstance(x, Blocked):
        return x.elements()
    matrix = _matrix(x, "b" if columns else "a")
    return _turned(matrix) if columns else matrix


def _turned(matrix: Matrix) -> Matrix:
    return [list(line) for line in zip(*matrix, strict=True)]


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
            f"gemm with c and {spec}; allowed: init=c_first or init=c_last.\n  State where C enters, or drop c."
        )
    addend = _matrix(c, "c")
    if len(addend) != m or any(len(row) != n for row in addend):
        raise ValueError(f"gemm: c is not ({m}, {n}); allowed: the shape of the result.\n  Broadcast it first.")
    return addend


def _select(spec: GemmSpec, select: Any, m: int, n: int) -> list[list[int]] | None:
    """The members' indices of a palette, one for each element; None for every other accumulator."""
    if not isinstance(spec.accumulator, Palette):
        if select is not None:
            raise ValueError(f"gemm with select and {spec}; allowed: select for palette(...) only.\n  Drop it.")
        return None
    count = len(spec.accumulator.members)
    if select is None:
        raise ValueError(f"gemm with {spec} without select; allowed: ({m}, {n}) indices below {count}.\n  Give select.")
    indices = [[int(x) for x in row] for row in _matrix(select, "select")]
    if len(indices) != m or any(len(row) != n for row in indices):
        raise ValueError(f"gemm: select is not ({m}, {n}); allowed: the shape of the result.\n  Broadcast it first.")
    wrong = next((x for row in indices for x in row if not 0 <= x < count), None)
    if wrong is not None:
        raise ValueError(f"gemm: index {wrong} in select; allowed: 0 to {count - 1}, the palette's members.\n  Fix it.")
    return indices


def _check_integers(matrix: Matrix, name: str, spec: GemmSpec) -> None:
    wrong = next((x for row in matrix for x in row if not x.is_integer()), None)
    if wrong is not None:
        raise ValueError(
            f"gemm with {spec}: {name} has {wrong!r}; allowed: integers, in whatever dtype.\n"
            f"  Give {name} an integer format (int8 : ...), or use fixed(...) for fractions."
        )
