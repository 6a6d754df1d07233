"""Operands under scales of blocks, and their products, by definition, in Fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..arithmetic import GemmSpec, UnsupportedSpec
from ..arithmetic.block_operands import takes_scales
from ..arithmetic.scaled import Scaled
from ..formats import E4M3, E8M0, BlockFormat, Cast, ScaledCast, ScaledCastRule
from .block_scale import binary32
from .blocked import Blocked
from .philox import Site
from .quantize import quantize
from .rounding import round_value

__all__ = ["ScaledLines", "multiply", "quantize_scaled", "scaled_lines"]

Matrix = list[list[float]]
_LARGEST = float.fromhex("0x1.fffffep127")


@dataclass(frozen=True)
class ScaledLines:
    """Rows of a, or columns of b: elements, the scale of each, the tensor's own scale and the gain."""

    elements: Matrix
    scales: Matrix
    second: float | None
    gain: float

    def values(self) -> Matrix:
        """Elements times scales in binary32."""
        return [
            [self._value(x, d) for x, d in zip(line, scales, strict=True)]
            for line, scales in zip(self.elements, self.scales, strict=True)
        ]

    def _value(self, x: float, scale: float) -> float:
        factor = scale if self.second is None else _times(scale, self.second)
        found = _times(x, factor)
        return found if self.gain == 1.0 else _over(found, self.gain)


def scaled_lines(lines: Matrix, fmt: ScaledCast, turned: bool, seed: int = 0, site: int = Site.QUANTIZE) -> ScaledLines:
    """``lines`` under ``fmt``, the sum along each line; ``turned``: they are the columns of the operand, whose elements
    are counted row by row for their random bits."""
    lines = [[binary32(x) for x in line] for line in lines]
    if fmt.stored is not None:
        kept = scaled_lines(_turn(lines), replace(fmt.stored, dim=-1), not turned, seed, site).values()
        lines = _turn(kept)
    if fmt.hadamard:
        lines = [_transformed(line, fmt) for line in lines]
    width = len(lines[0]) if lines else 0
    rows, terms = fmt.rows or max(1, len(lines)), fmt.terms or max(1, width)
    second = None
    if fmt.rule is ScaledCastRule.NVFP4:
        whole = _amax([x for line in lines for x in line])
        second = max(_over(whole, binary32(fmt.largest * E4M3.max)), 2.0**-96)
    scales: Matrix = [[0.0] * width for _ in lines]
    before: Matrix = [[0.0] * width for _ in lines]
    for i in range(0, len(lines), rows):
        for k in range(0, width, terms):
            block = [(m, n) for m in range(i, min(i + rows, len(lines))) for n in range(k, min(k + terms, width))]
            scale, divided = _scale(_amax([lines[m][n] for m, n in block]), fmt, second)
            for m, n in block:
                y = divided(lines[m][n])
                before[m][n] = y if fmt.gain == 1.0 else _times(y, fmt.gain)
                scales[m][n] = scale
    asked = _turn(before) if turned else before
    elements = quantize(asked, fmt.cast, seed, site)
    return ScaledLines(_turn(elements) if turned else elements, scales, second, fmt.gain)


def quantize_scaled(lines: Matrix, fmt: ScaledCast, turned: bool, seed: int = 0, site: int = Site.QUANTIZE) -> Matrix:
    """The values that ``fmt`` keeps of ``lines``, transforms undone."""
    width = len(lines[0]) if lines else 0
    found = scaled_lines(lines, fmt, turned, seed, site).values()
    return [_undone(line, fmt)[:width] for line in found] if fmt.hadamard else found


def _scale(amax: float, fmt: ScaledCast, second: float | None) -> tuple[float, Callable[[float], float]]:
    """The scale of a block, and how its numbers are divided by it."""
    amax = max(amax, binary32(fmt.least)) if fmt.least else amax
    largest = binary32(fmt.largest)
    if fmt.rule is ScaledCastRule.FLOOR:
        assert fmt.block_format is not None
        exponent = -127 if amax == 0 else min(max(_floor_log2(amax) - fmt.block_format.emax, -127), 127)
        return 2.0**exponent, lambda x: _over(x, 2.0**exponent)
    if fmt.rule is ScaledCastRule.NVFP4:
        assert second is not None
        wanted = min(max(_over(_over(amax, largest), second), 2.0**-6), float(E4M3.max))
        scale = round_value(wanted, Cast(E4M3))
        inverse = _over(_over(1.0, second), scale)
        return scale, lambda x: _times(x, inverse)
    if fmt.rule is ScaledCastRule.AMAX:
        up = 1.0 if amax == 0 else min(_over(largest, amax), _LARGEST)
        up = 2.0 ** _floor_log2(up) if fmt.power else up
        return _over(1.0, up), lambda x: _times(x, up)
    down = 1.0 if amax == 0 else max(_over(amax, largest), 2.0**-149)
    if fmt.power:
        exponent = _floor_log2(down)
        down = 2.0 ** (exponent + (Fraction(down) != Fraction(2) ** exponent))
    return down, lambda x: _over(x, down)


def multiply(a: Matrix, b: Matrix, spec: GemmSpec, seed: int, gemm: Callable[..., Matrix]) -> Matrix:
    """The product of rows ``a`` (M, K) and ``b`` (K, N), one or both in scaled casts, before the cast to ``spec.out``.

    Raises:
        UnsupportedSpec: for an inner accumulator with random bits.
    """
    formats = (spec.a, spec.b)
    left = scaled_lines(a, spec.a, False, seed, Site.OPERAND_A) if isinstance(spec.a, ScaledCast) else None
    right = scaled_lines(_turn(b), spec.b, True, seed, Site.OPERAND_B) if isinstance(spec.b, ScaledCast) else None
    if not takes_scales(spec.accumulator):
        values = (a if left is None else left.values(), b if right is None else _turn(right.values()))
        return gemm(*values, replace(spec, a=spec.cast_a, b=spec.cast_b, out=None), seed)
    gain = math.prod(x.gain for x in (left, right) if x is not None)
    if all(fmt.block_format is not None for fmt in formats if isinstance(fmt, ScaledCast)):
        found = _in_blocks(a, b, left, right, spec, seed, gemm)
    else:
        found = _under_binary_scales(a, b, left, right, spec, seed, gemm)
    return found if gain == 1.0 else [[_over(x, gain) for x in row] for row in found]


def _in_blocks(
    a: Matrix,
    b: Matrix,
    left: ScaledLines | None,
    right: ScaledLines | None,
    spec: GemmSpec,
    seed: int,
    gemm: Callable[..., Matrix],
) -> Matrix:
    blocks = [fmt.block_format if isinstance(fmt, ScaledCast) else fmt for fmt in (spec.a, spec.b)]
    operands: list[object] = [a, b]
    for i, (lines, fmt) in enumerate(zip((left, right), blocks, strict=True)):
        if lines is not None:
            assert isinstance(fmt, BlockFormat)
            operands[i] = _blocked(lines, fmt)
    return gemm(*operands, replace(spec, a=blocks[0], b=blocks[1], out=None), seed)


def _blocked(lines: ScaledLines, fmt: BlockFormat) -> Blocked:
    size = fmt.block_size
    codes: list[list[int]] = []
    scales: list[list[int]] = []
    for line, factors in zip(lines.elements, lines.scales, strict=True):
        codes.append([fmt.element.encode(x if math.isfinite(x) else 0.0) for x in line])
        scales.append([])
        for k in range(0, len(line), size):
            bad = any(not math.isfinite(x) for x in line[k : k + size])
            nan = 255 if fmt.scale == E8M0 else 0x7F
            scales[-1].append(nan if bad else fmt.scale.encode(factors[k]))
    return Blocked(codes, scales, fmt, 1.0 if lines.second is None else lines.second)


def _under_binary_scales(
    a: Matrix,
    b: Matrix,
    left: ScaledLines | None,
    right: ScaledLines | None,
    spec: GemmSpec,
    seed: int,
    gemm: Callable[..., Matrix],
) -> Matrix:
    accumulator = spec.accumulator
    assert isinstance(accumulator, Scaled)
    inner = GemmSpec(accumulator=accumulator.inner, arithmetic=spec.arithmetic)
    if inner.is_stochastic or accumulator.outer.is_stochastic:
        raise UnsupportedSpec(f"gemm of {spec}; allowed: registers without random bits.\n  Use gemmsim.qmatmul.")
    rows = _cast(a, spec.cast_a, seed, Site.OPERAND_A) if left is None else left.elements
    columns = _turn(_cast(b, spec.cast_b, seed, Site.OPERAND_B)) if right is None else right.elements
    size = len(rows[0]) if rows else 0
    group = _group(spec, size)
    ones = [1.0] * size
    result: Matrix = []
    for i, row in enumerate(rows):
        result.append([])
        for j, column in enumerate(columns):
            total = 0.0
            for k in range(0, size, group):
                s = gemm([row[k : k + group]], [[x] for x in column[k : k + group]], inner, seed)[0][0]
                scale = _times(
                    (ones if left is None else left.scales[i])[k], (ones if right is None else right.scales[j])[k]
                )
                total = _step(total, s, scale, accumulator.outer)
            seconds = [x.second for x in (left, right) if x is not None and x.second is not None]
            if seconds:
                total = _step(0.0, total, seconds[0] if len(seconds) == 1 else _times(*seconds), accumulator.outer)
            result[-1].append(total)
    return result


def _cast(matrix: Matrix, cast: Cast | None, seed: int, site: int) -> Matrix:
    found: Matrix = matrix if cast is None else quantize(matrix, cast, seed, site)
    return found


def _group(spec: GemmSpec, size: int) -> int:
    terms = [fmt.terms for fmt in (spec.a, spec.b) if isinstance(fmt, ScaledCast) and 0 < fmt.terms < size]
    found = getattr(spec.accumulator, "n", None) or (math.gcd(*terms) if terms else size)
    return max(1, min(found, size))


def _step(total: float, s: float, scale: float, outer: Cast) -> float:
    """R(total + s * scale), from +0 on."""
    if not all(map(math.isfinite, (total, s, scale))):
        return round_value(total + s * scale, outer)
    exact = Fraction(total) + Fraction(s) * Fraction(scale)
    return round_value(exact, outer) if exact else round_value(total + s * scale + 0.0, outer)


def _amax(numbers: Sequence[float]) -> float:
    return max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)


def _floor_log2(x: float) -> int:
    return math.frexp(x)[1] - 1


def _times(x: float, y: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y)) or x == 0 or y == 0:
        return x * y
    found = binary32(Fraction(x) * Fraction(y))
    return math.copysign(found, x * y) if found == 0 else found


def _over(x: float, y: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y)) or x == 0:
        return x / y
    found = binary32(Fraction(x) / Fraction(y))
    return math.copysign(0.0, math.copysign(1.0, x) * math.copysign(1.0, y)) if found == 0 else found


def _turn(lines: Sequence[Sequence[float]]) -> Matrix:
    return [list(line) for line in zip(*lines, strict=True)]


def _signs(fmt: ScaledCast) -> list[float]:
    if fmt.signs is None:
        return [1.0] * fmt.hadamard
    up = quantize([0.5] * fmt.hadamard, "fixed(2,0)/sr1", fmt.signs, Site.PERMUTATION)
    return [1.0 - 2.0 * x for x in up]


def _transformed(line: Sequence[float], fmt: ScaledCast) -> list[float]:
    n, signs = fmt.hadamard, _signs(fmt)
    line = [*line, *[0.0] * (-len(line) % n)]
    return [x for k in range(0, len(line), n) for x in _turned(list(map(_times, line[k : k + n], signs)))]


def _undone(line: Sequence[float], fmt: ScaledCast) -> list[float]:
    n, signs = fmt.hadamard, _signs(fmt)
    return [x for k in range(0, len(line), n) for x in map(_times, _turned(line[k : k + n]), signs)]


def _turned(terms: Sequence[float]) -> list[float]:
    """Sylvester's matrix times ``terms``: an exact sum, in binary32, times the root of 1 / n in binary32."""
    n = len(terms)
    root = binary32(n**-0.5)
    found = []
    for i in range(n):
        signed = [-x if (i & k).bit_count() % 2 else x for k, x in enumerate(terms)]
        total = binary32(sum(map(Fraction, signed))) if all(map(math.isfinite, signed)) else math.fsum(signed)
        found.append(_times(total, root))
    return found
