"""What AVX2 executes for each class of kernel, counted, beside what the method needs at least.

    python benchmarks/limits.py      # needs valgrind; some minutes

Both columns are instructions for each vector of eight: of eight multiply-adds of a product, of eight elements of a cast
or a row operation. A kernel in double lanes has four to a vector, so its method counts twice. "Counted" is what the
library executed (counted.py), copies, loads, stores, loop control and steps done again included; "method" is the
arithmetic (docs/design/cpu.md has the counts of roundings), with a cast's load and store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from limits_avx512 import PER_PRODUCT, PER_STEP

if TYPE_CHECKING:
    import torch

__all__ = ["ROWS", "Counting", "Row", "method_of"]

#: A vector's multiply-add, or another operation.
OP = 1
#: Veltkamp's splitting; an added magic number that knows 2^emin, and the sign of zero.
ROUND, SUBNORMALS, SIGN = 3, 5, 2
#: Truncation: half of the last place, a mask. Looks: for midpoints and small sums at once, for midpoints of eight bits,
#: for midpoints by a shift and a minimum, for small magnitudes, for small rescaled ones, for large magnitudes.
TRUNCATE, LOOK, LOOK_HALVES, LOOK_SHIFTED, LOOK_SMALL, LOOK_RESCALED, LOOK_LARGE = 2, 2, 1, 2, 2, 1, 1
#: A product rounded once: it, a number from its exponent, both in one operation, that number taken away. A sum made to
#: odd under rounding down: two operations, a shift and a choice.
PRODUCT, TO_ODD = 6, 4
#: With any policy of overflow, with or without subnormals: below 2^emin 5, clamps and what is past the ends 6, the sign
#: 2. In a mode: a power of two of the sum's sign, 7, added and taken away.
CLAMP, ANY_END, DIRECTED = 6, 13, 9
#: Random bits: seven and a half rounds of two products of seven, words put in order; for eight steps.
DRAW = (7.5 * 2 * 7 + 2) / 8
#: A sum of two registers of a compensated step.
SUM = OP + ROUND
#: The first rounding of a compensated step, checked: it has a product in it.
SPECULATIVE = OP + ROUND + LOOK_SHIFTED + LOOK_SMALL
#: A row operation's step in float lanes: the operation, a rounding with subnormals, a look whether it left the ground.
STEP = OP + SUBNORMALS + SIGN + 3
#: Rows into lanes and back: 24 shuffles for eight vectors.
TURN = 3
#: In double lanes, of which there are two: the sum and its error, to odd, a rounding to anything.
WIDE_ADD, WIDE_MUL = 2 * (6 + 9 + 20), 2 * (3 + 9 + 20)
EXPONENTIAL = 2 + 13 + 2 + 2 * (SUBNORMALS + SIGN) + 5
#: Of a cast: a load and a store; a look whether numbers are inside the format's range. With the carrier's exponents
#: half a place and the last bit kept, which decides ties, are added to the bits, 5; NaN and infinity are 5 more.
MEMORY, INSIDE = 2, 3


@dataclass(frozen=True)
class Row:
    """A kernel of some class: a spec or an operation by name, operands' format, and its method's instructions."""

    kind: str
    text: str
    method: float
    operands: str = ""
    k: int = 512
    #: Multiplications, fused or not, alone: two a cycle.
    only_multiplies: bool = False


ROWS = (
    Row("nearest", ":fp32", OP, only_multiplies=True),
    Row("nearest", "e4m3 : e5m10", OP + ROUND, "e4m3"),
    Row("nearest", ":e5m10, arithmetic=fp32", OP + ROUND),
    Row("nearest", ":e5m10", OP + TRUNCATE),
    Row("nearest", ":e5m10", OP + ROUND - 0.5 + LOOK_SHIFTED + LOOK_RESCALED, "e5m10"),
    Row("nearest", ":bf16", OP + TRUNCATE + LOOK_HALVES),
    Row("nearest", ":e8m12", OP + TRUNCATE + LOOK),
    Row("directed", ":e5m10/rtz", OP + 1),
    Row("directed", ":e5m10/rna", OP + 2),
    Row("directed", ":e5m10/ru", OP + 4),
    Row("directed", ":e5m10/ru, arithmetic=fp32", OP + 4 + LOOK_SMALL),
    Row("directed", ":e5m10/ro", OP + 4 + 4 + LOOK_SMALL + 1),
    Row("stochastic", ":e5m10/sr16", OP + 1 + TRUNCATE + LOOK_SMALL + DRAW),
    Row("stochastic", ":e5m10/sr12", OP + 2 + TRUNCATE + DRAW),
    Row("stochastic", ":bf16/sr8", OP + 2 + TRUNCATE + DRAW),
    Row("separate roundings", ":mul=e5m10, add=e5m10", 8.5),
    Row("no subnormals", ":e5m10/ftz", OP + ROUND + LOOK_SHIFTED + LOOK_SMALL + LOOK_LARGE),
    Row("saturating", ":e5m10/sat", OP + TRUNCATE),
    Row("saturating", ":e4m3/sat", OP + ROUND + LOOK_SHIFTED + LOOK_SMALL + LOOK_LARGE, "times 2"),
    Row("chunked", ":chunked(64, e5m10)", OP + TRUNCATE + LOOK + (SUM + SIGN) / 64),
    Row("chunked", ":chunked(64, fp32)", OP, only_multiplies=True),
    Row("pairwise", ":pairwise(e5m10, 1)", PRODUCT + SUM),
    Row("pairwise", ":pairwise(e5m10, 4)", PRODUCT / 4 + (TO_ODD + SUBNORMALS + SIGN) * 3 / 4 + SUM / 4),
    Row("pairwise", ":pairwise(e5m10, 16)", OP + TRUNCATE + LOOK + SUM / 16),
    Row("interleaved", ":interleaved(16, e5m10)", OP + TRUNCATE + LOOK),
    Row("interleaved", ":splitk(8, e5m10, e5m10)", OP + TRUNCATE + LOOK),
    Row("compensated", ":kahan(e5m10)", SPECULATIVE + 3 * SUM),
    Row("compensated", ":kahan(fp32)", 4 * OP),
    Row("compensated", ":neumaier(e5m10)", SPECULATIVE + 4 * SUM + 5),
    Row("compensated", ":two_sum(e5m10)", SPECULATIVE + 7 * SUM),
    Row("compensated", ":fast_two_sum(e5m10)", SPECULATIVE + 4 * SUM),
    Row("compensated", ":kahan(e5m10/rtz)", OP + DIRECTED + 3 * (OP + 1)),
    Row("compensated", ":kahan(e5m10/rna)", OP + DIRECTED + 1 + 3 * (OP + 2)),
    Row("compensated", ":kahan(e4m3)", TO_ODD + ANY_END + 3 * (OP + ANY_END)),
    Row("compensated", ":kahan(e4m3/rtz)", OP + DIRECTED + CLAMP + 3 * (OP + DIRECTED + CLAMP)),
    Row("integer", ":int(32)", 2 * OP, "int", only_multiplies=True),
    Row("integer", ":int(16, saturate)", OP, "int", only_multiplies=True),
    Row("fixed", ":fixed(24, 12, rounding=rne)", 2 * 4),
    Row("hardware", "e4m3 : hw(hopper, wgmma, e4m3)", PER_PRODUCT + PER_STEP / 32, "e4m3", k=128),
    Row("hardware", "bf16 : hw(hopper, wgmma, bf16)", PER_PRODUCT + PER_STEP / 16, "bf16", k=128),
    Row("scaled blocks", "mxfp8_e4m3 : scaled(fp32)", OP + 2 / 32, only_multiplies=True),
    Row("scaled blocks", "mxfp8_e4m3 : fp32", OP, only_multiplies=True),
    Row("scaled blocks", "nvfp4 : fp32", OP, only_multiplies=True),
    Row("exact", ":exact()", 2 * 4 * OP, "e5m10", only_multiplies=True),
    Row("cast", "quantize e5m10", MEMORY + INSIDE + SUBNORMALS + SIGN),
    Row("cast", "quantize e4m3/sat", MEMORY + INSIDE + SUBNORMALS + SIGN),
    Row("cast", "quantize bf16", MEMORY + 5 + 5),
    Row("cast", "quantize e5m10/rtz", MEMORY + INSIDE + 10),
    Row("cast", "quantize fixed(16,8)", MEMORY + INSIDE + SUBNORMALS + SIGN),
    Row("cast", "quantize e5m10/sr16", MEMORY + TRUNCATE + 1 + 2 * LOOK_SMALL + DRAW),
    Row("MX quantiser", "mx.quantize mxfp8_e4m3", MEMORY + 2 + 1 + SUBNORMALS + SIGN + 1),
    Row("MX quantiser", "mx.quantize nvfp4", MEMORY + 2 + 1 + SUBNORMALS + SIGN + 1),
    Row("integer quantiser", "fake_tensor_quant int8", MEMORY + 1 + 2 + 5 + 1 + 2),
    Row("row operation", "qlayernorm e5m10", 2 * (MEMORY + TURN) + 7 * STEP - 1, "e5m10"),
    Row("row operation", "qsoftmax e5m10", 2 * (MEMORY + TURN) + 1 + 3 * STEP + EXPONENTIAL, "e5m10"),
    Row("row operation", "qlayernorm bf16", MEMORY + 4 * WIDE_ADD + 2 * WIDE_MUL + 2 * 20, "bf16"),
)  # fmt: skip


def method_of(spec: str) -> Row | None:
    """The first row of the spec with this ``GemmSpec.key``; None where there is none."""
    return _by_key().get(spec)


@cache
def _by_key() -> dict[str, Row]:
    import gemmsim as gs

    return {gs.GemmSpec.of(row.text).key: row for row in reversed(ROWS) if ":" in row.text}


class Counting:
    """Counts rows; within a process that counted.start began. ``count``: counted.counted."""

    def __init__(self, count: Callable[[Callable[[], object]], int]):
        import torch

        self.count = count
        self.generator = torch.Generator().manual_seed(0)

    def rows(self, only: str) -> Iterator[tuple[Row, float, str]]:
        """(row, instructions for each vector of eight, kernel that ran)."""
        for row in ROWS:
            if only in row.kind or only in row.text:
                yield (row, *(self._product(row) if ":" in row.text else (self._elements(row), "")))

    def _product(self, row: Row) -> tuple[float, str]:
        """Of 2M x 2N outputs less twice those of M x N: what is done for each element of an operand cancels."""
        import gemmsim as gs

        spec, m, n, counts = gs.GemmSpec.of(row.text), 24, 48, []
        for times in (1, 2):
            a, b = self._operand(times * m, row.k, row.operands), self._operand(row.k, times * n, row.operands)
            gs.qmatmul(a, b, spec, seed=1)
            counts.append(self.count(lambda: gs.qmatmul(a, b, spec, seed=1)))
        return (counts[1] - 2 * counts[0]) / (2 * m * n * row.k / 8), str(gs.last_backend()).split("] on cpu: ", 1)[-1]

    def _operand(self, rows: int, columns: int, form: str) -> torch.Tensor:
        import torch

        import gemmsim as gs

        if form == "int":
            return torch.randint(-8, 8, (rows, columns), generator=self.generator).float()
        x = torch.randn(rows, columns, generator=self.generator)
        if form == "times 2":
            return x * 2
        return gs.quantize(x, form) if form else x

    def _elements(self, row: Row) -> float:
        """Of 128 rows less those of 64."""
        counts = []
        for rows in (64, 128):
            run = _operation(row.text, self._operand(rows, 256, row.operands))
            run()
            counts.append(self.count(run))
        return (counts[1] - counts[0]) / (64 * 256 / 8)


def _operation(text: str, x: torch.Tensor) -> Callable[[], object]:
    import torch

    import gemmsim as gs
    from gemmsim import mx, tensor_quant

    name, form = text.split(" ", 1)
    out, size = torch.empty_like(x), x.shape[-1]
    return {
        "quantize": lambda: gs.quantize(x, form, out=out, seed=1),
        "mx.quantize": lambda: mx.quantize(x, form),
        "fake_tensor_quant": lambda: tensor_quant.fake_tensor_quant(x, x.abs().amax()),
        "qlayernorm": lambda: gs.qlayernorm(x, size, spec=gs.QLayerNormFormats(*[form] * 4)),
        "qsoftmax": lambda: gs.qsoftmax(x, -1, gs.QSoftmaxFormats(*[form] * 3)),
    }[name]
