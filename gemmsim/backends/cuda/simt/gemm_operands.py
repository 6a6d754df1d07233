"""What a kernel of family ``gemm`` knows of its operands at compile time, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.formats import Cast, FloatFormat
from gemmsim.lowering.abi_constants import Method
from gemmsim.lowering.accumulators import program
from gemmsim.lowering.carriers import Carrier, Facts, carrier_of, is_packed, is_small, operand_facts
from gemmsim.lowering.cast_numbers import ABSENT, CastNumbers
from gemmsim.lowering.casts import cast_numbers, stays_in_float32
from gemmsim.lowering.program import Program

from ...dtypes import KERNEL_DTYPES
from ..codes import CodeFormat
from ..jit.source import cast_literal
from .table_facts import TableFacts

__all__ = [
    "ANY_STRIDES",
    "LINES_CONTIGUOUS",
    "TERMS_CONTIGUOUS",
    "FinishText",
    "Operands",
    "both_facts",
    "carrier_for",
    "dtype_literal",
    "fit_float",
    "is_packed_run",
    "is_small_run",
    "operand_casts",
    "present",
    "program_of",
]

#: The enumerators of gemmsim::Layout.
ANY_STRIDES, TERMS_CONTIGUOUS, LINES_CONTIGUOUS = 0, 1, 2


@dataclass(frozen=True)
class FinishText:
    """The epilogue of a kernel: the result in dtype ``work``, the dtype of an added bias, a cast."""

    work: torch.dtype
    bias: torch.dtype | None = None
    cast: Cast | None = None

    def literal(self) -> str:
        """Return the initializer of gemmsim::Finish."""
        work, bias = dtype_literal(self.work), dtype_literal(self.bias or self.work)
        fields = f".work = {work}, .bias = {bias}, .cast = {cast_literal(present(self.cast))}"
        return f"{{.present = 1, .biased = {int(self.bias is not None)}, {fields}}}"

    def __str__(self) -> str:
        steps = "" if self.bias is None else f" + {KERNEL_DTYPES[self.bias].label.lower()} bias"
        steps += f" to {self.cast}" if self.cast is not None else ""
        return f"{steps} in {KERNEL_DTYPES[self.work].label.lower()}"


@dataclass(frozen=True)
class Operands:
    """What a kernel knows of the tensors.

    ``a``, ``b``, ``out``, ``c``: dtypes; ``c`` is None without an addend. ``select``: a selection is given. ``done_a``,
    ``done_b``: the operand is already the result of its cast. ``layout_a``, ``layout_b``: gemmsim::Layout. ``count``:
    overflows are counted, into int64, in place of ``out``. ``code_a``, ``code_b``: formats of operands that are codes
    (of dtype uint8), which are results of the spec's casts to them.
    """

    a: torch.dtype
    b: torch.dtype
    out: torch.dtype
    c: torch.dtype | None = None
    select: bool = False
    done_a: bool = False
    done_b: bool = False
    layout_a: int = 0
    layout_b: int = 0
    count: bool = False
    code_a: CodeFormat | None = None
    code_b: CodeFormat | None = None
    #: For operands in block formats with separate scales: the format of the scales, and whether the tensor has a scale.
    scale_a: tuple[FloatFormat, bool] | None = None
    scale_b: tuple[FloatFormat, bool] | None = None
    #: Number of terms that share a pair of scales.
    group: int | None = None
    #: The epilogue in the same kernel.
    finish: FinishText | None = None
    #: Whether ``a`` is read through tables of offsets.
    gathered: bool = False
    #: The table in which products are looked up; operands are then codes of dtype int16.
    table: TableFacts | None = None
    #: Whether events of additions are counted in addition to ``out``.
    events: bool = False


def dtype_literal(dtype: torch.dtype) -> str:
    return f"gemmsim::{KERNEL_DTYPES[dtype].label}"


@lru_cache(maxsize=4096)
def program_of(accumulator: Accumulator, group: int | None = None) -> Program:
    """Return the program of ``accumulator``, which must have one.

    ``group`` is the number of terms that share a pair of scales.
    """
    found = program(accumulator, group)
    assert isinstance(found, Program), found
    return found


def present(cast: Cast | None) -> CastNumbers:
    return ABSENT if cast is None else cast_numbers(cast)


def fit_float(spec: GemmSpec, operands: Operands) -> bool:
    """Whether float represents the operands' values, or a table's products."""
    if operands.table is not None:
        return operands.table.fits_float
    return _fits_float(spec.cast_a, operands.a) and _fits_float(spec.cast_b, operands.b)


def _fits_float(cast: Cast | None, dtype: torch.dtype) -> bool:
    if cast is None:
        return dtype != torch.float64
    c = cast_numbers(cast)
    if dtype not in (torch.float64, torch.uint8):
        return stays_in_float32(cast)
    return c.fits_float32


def carrier_for(spec: GemmSpec, what: Program, operands: Operands) -> Carrier:
    narrow = fit_float(spec, operands) and operands.c != torch.float64
    return carrier_of(what, narrow, spec.arithmetic == "fp32")


def operand_casts(spec: GemmSpec, operands: Operands) -> tuple[CastNumbers, CastNumbers]:
    """Return the bounds of the factors of terms as casts; the factors of a table are 1 and the product."""
    if operands.table is not None:
        return operands.table.casts()
    return present(spec.cast_a), present(spec.cast_b)


def both_facts(spec: GemmSpec, operands: Operands) -> tuple[Facts, Facts]:
    a, b = operand_casts(spec, operands)
    return operand_facts(a, KERNEL_DTYPES[operands.a]), operand_facts(b, KERNEL_DTYPES[operands.b])


def is_packed_run(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    plain = operands.table is None and not operands.events
    return plain and is_packed(what, spec.arithmetic == "fp32", both_facts(spec, operands))


def is_small_run(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """Whether an integer register is computed in ordinary integers."""
    return what.method == Method.INTEGER and not operands.count and is_small(what, both_facts(spec, operands))
