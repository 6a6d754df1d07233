"""Kernels of family ``gemm``: the few lines that instantiate cutlass_kernels/gemm/simt.h for a spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.formats import E8M0, Cast, FloatFormat

from ..cpu.params import CODE_PARITY, NEG_ZERO, NO_SUBNORMALS, NO_ZERO, PRESENT, cast_record, float32_holds
from ..cpu.program import INTERLEAVED, PAIRWISE, SHUFFLED, Program, program
from ..cpu.records import CastRecord, HardwareRecord
from .codes import CodeFormat, code_format
from .source import KernelSource, cast_literal
from .table_facts import TableFacts

__all__ = [
    "DEPTH",
    "SIDE",
    "THREADS",
    "Finish",
    "GemmKernel",
    "Operands",
    "gemm_source",
    "is_permuted",
    "program_of",
    "sides",
    "table_dtype",
]

#: Of a block (cutlass_kernels/gemm/config.h): 16 x 16 threads, terms of a chunk.
THREADS, SIDE, DEPTH = 256, 16, 16

#: Names of gemmsim::DType, bytes of an element, significand bits.
DTYPES = {
    torch.float32: ("F32", 4, 24),
    torch.float64: ("F64", 8, 53),
    torch.float16: ("F16", 2, 11),
    torch.bfloat16: ("BF16", 2, 8),
    torch.uint8: ("CODES", 1, 8),
    torch.int16: ("I16", 2, 16),  # of codes and products in tables
    torch.int32: ("I32", 4, 32),
}
#: gemmsim::Layout.
ANY_STRIDES, TERMS_CONTIGUOUS, LINES_CONTIGUOUS = 0, 1, 2
_DTYPE_FACTS = {
    torch.float32: (24, -149, 128),
    torch.float64: (53, -1074, 1024),
    torch.float16: (11, -24, 16),
    torch.bfloat16: (8, -133, 128),
    torch.uint8: (53, -1074, 1024),  # of codes: their format's cast says the rest
    torch.int16: (53, -1074, 1024),  # likewise, that of the products
}
_INITS = {"zero": 0, "c_first": 1, "c_last": 2}
_SR, _SRB = 6, 7
REGISTER, LONG, INTEGER, FIXED, HARDWARE, BINNED = 0, 5, 6, 7, 8, 9
#: Most outputs of a thread each way whose products are looked up: enough to hide a load, and room for more threads.
_MOST_LOOKED_UP = 4
#: Of the float and the double carrier: significand bits, exponents of normal numbers.
_CARRIERS = ((24, -126, 127), (53, -1022, 1023))


@dataclass(frozen=True)
class Finish:
    """What a kernel does after the product: its result in dtype ``work``, a bias of a dtype added, a cast."""

    work: torch.dtype
    bias: torch.dtype | None = None
    cast: Cast | None = None

    def literal(self) -> str:
        """Initializer of gemmsim::Finish."""
        work, bias = _dtype(self.work), _dtype(self.bias or self.work)
        fields = f".work = {work}, .bias = {bias}, .cast = {cast_literal(_present(self.cast))}"
        return f"{{.present = 1, .biased = {int(self.bias is not None)}, {fields}}}"

    def __str__(self) -> str:
        steps = f" + {DTYPES[self.bias][0].lower()} bias" if self.bias is not None else ""
        return steps + (f" to {self.cast}" if self.cast is not None else "") + f" in {DTYPES[self.work][0].lower()}"


@dataclass(frozen=True)
class Operands:
    """What a kernel knows of the tensors.

    dtypes; whether an addend and a selection are given; whether operands hold results of their casts already; which of
    them lie in memory as gemmsim::Layout says; whether overflows are counted, into int64, in place of ``out``;
    the formats of operands that are codes (of dtype uint8), which are results of the spec's casts to them.
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
    #: Of operands in block formats whose scales come apart: their format, and whether the tensor has one, too.
    scale_a: tuple[FloatFormat, bool] | None = None
    scale_b: tuple[FloatFormat, bool] | None = None
    #: Terms that share a pair of scales.
    group: int | None = None
    #: What follows the product in the same kernel.
    finish: Finish | None = None
    #: Whether ``a`` is read through tables of offsets.
    gathered: bool = False
    #: The table that products are looked up in; operands are codes, of dtype int16.
    table: TableFacts | None = None


@dataclass(frozen=True)
class GemmKernel:
    """A kernel and the tile of a block: ``rows`` by ``cols`` outputs."""

    source: KernelSource
    rows: int
    cols: int


@lru_cache(maxsize=4096)
def program_of(accumulator: Accumulator, group: int | None = None) -> Program:
    """How ``accumulator``, which the CPU backend knows, is run; ``group``: terms that share a pair of scales."""
    found = program(accumulator, group)
    assert isinstance(found, Program), found
    return found


def _present(cast: Cast | None) -> CastRecord:
    return CastRecord() if cast is None else cast_record(cast)


def _fits(c: CastRecord, carrier: int, spare: bool) -> bool:
    """gemmsim::fits: one rounding from the carrier is right; ``spare``: of a number rounded to odd."""
    bits, emin, emax = _CARRIERS[carrier]
    if c.mode > _SR or c.flags & (CODE_PARITY | NO_ZERO):
        return False
    if c.emin < emin or c.emax > emax or c.emin + bits - c.p >= emax:
        return False
    extra = (c.rbits + 1 if c.mode == _SR else 2) if spare else 0
    return bool(c.p + extra <= bits and (c.mode != _SR or c.rbits <= bits - 1))


def _native(c: CastRecord, carrier: int) -> bool:
    """The carrier, rounded to nearest, is the format."""
    bits, emin, emax = _CARRIERS[carrier]
    infinite = [c.over_pos, -c.over_neg, c.inf_pos, -c.inf_neg] == [float("inf")] * 4
    plain = bool(c.flags & NEG_ZERO) and not c.flags & NO_SUBNORMALS
    return c.mode == 0 and (c.p, c.emin, c.emax) == (bits, emin, emax) and infinite and plain


def _fit_float(spec: GemmSpec, operands: Operands) -> bool:
    """Whether float holds the operands' values, or a table's products."""
    if operands.table is not None:
        return operands.table.fits_float
    return _fits_float(spec.cast_a, operands.a) and _fits_float(spec.cast_b, operands.b)


def _fits_float(cast: Cast | None, dtype: torch.dtype) -> bool:
    if cast is None:
        return dtype != torch.float64
    c = cast_record(cast)
    if dtype not in (torch.float64, torch.uint8):
        return float32_holds(cast)
    return bool(c.p <= 24 and c.emax <= 127 and c.emin - c.p + 1 >= -149)


def carrier_of(spec: GemmSpec, what: Program, operands: Operands) -> int:
    """0 float, 1 double, 2 integers of 128 bits: the cheapest that holds operands, registers and totals."""
    add, mul = cast_record(what.add), _present(what.mul)
    casts = [add] + ([mul] if what.mul is not None else [])
    totals = [cast_record(w.cast) for w in what.wrappers if w.cast is not None]
    fp32 = spec.arithmetic == "fp32"
    if what.method == HARDWARE:
        return 0 if all(_fits(c, 0, not fp32) or _native(c, 0) for c in totals) else 2
    narrow = _fit_float(spec, operands)
    if operands.c == torch.float64:
        narrow = False
    if what.method in (INTEGER, FIXED):
        bits, frac = what.register[0], what.register[5]
        fits = bits <= 24 and frac <= 149 and bits - frac <= 127 and all(_fits(c, 0, False) for c in totals)
        return 0 if narrow and fits else 2
    if what.method in (LONG, BINNED):
        return 2
    for carrier in (0,) if fp32 else (0, 1) if narrow else (1,):
        if all(_native(c, carrier) for c in casts) or all(_fits(c, carrier, not fp32) for c in casts):
            if all(_fits(c, carrier, not fp32) or _native(c, carrier) for c in totals):
                return carrier
    return 2


def _operand_casts(spec: GemmSpec, operands: Operands) -> tuple[CastRecord, CastRecord]:
    """What is known of the factors of terms: a table's are 1 and the product."""
    if operands.table is not None:
        return operands.table.casts()
    return _present(spec.cast_a), _present(spec.cast_b)


def _both_facts(spec: GemmSpec, operands: Operands) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    a, b = _operand_casts(spec, operands)
    return _facts(a, operands.a), _facts(b, operands.b)


def _facts(c: CastRecord, dtype: torch.dtype) -> tuple[int, int, int]:
    """gemmsim::operand_facts: significand bits, exponent of the quantum, exponent that bounds magnitudes."""
    bits, quantum, top = _DTYPE_FACTS[dtype]
    if not c.flags & PRESENT:
        return bits, quantum, top
    own = c.emin - c.p + 1
    top += int(c.p < bits or own > quantum)  # the largest number may be rounded up
    if math.isfinite(c.hi) and (math.isfinite(c.inf_pos) or math.isfinite(c.inf_neg) or c.emax + 1 < top):
        top = c.emax + 1
    return min(c.p, bits), max(own, quantum), top


def is_packed(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """gemmsim::PackedFormat: register and operands are binary16, or bfloat16, numbers."""
    if what.method != REGISTER or what.mul is not None or spec.arithmetic == "fp32" or what.init == "c_first":
        return False
    if operands.table is not None:
        return False
    add = cast_record(what.add)
    own = _DTYPE_FACTS[torch.float16 if add.p == 11 else torch.bfloat16]
    infinite = [add.over_pos, -add.over_neg, add.inf_pos, -add.inf_neg] == [float("inf")] * 4
    if add.mode != 0 or not infinite or not add.flags & NEG_ZERO or add.flags & NO_SUBNORMALS:
        return False
    if (add.p, add.emin - add.p + 1, add.emax + 1) != own:
        return False
    return all(x[0] <= own[0] and x[1] >= own[1] and x[2] <= own[2] for x in _both_facts(spec, operands))


def _is_small(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """gemmsim::SmallIntegers: whole operands and a register that ordinary integers hold."""
    if operands.count:
        return False
    a, b = _both_facts(spec, operands)
    bits, saturate, at_end, _, shift, _ = what.register
    if min(a[1], b[1]) < 0 or max(a[2], b[2]) > 30 or shift:
        return False
    term = a[2] + b[2]
    return not saturate or (term <= 31 if at_end else max(term, bits) <= 62)


def _is_heavy(spec: GemmSpec, what: Program, operands: Operands, carrier: int) -> int:
    """Most outputs of a thread each way: what its registers and the instruction cache take."""
    random = [c for c in (what.add, what.mul) if c is not None and c.is_stochastic]
    if what.method == INTEGER and _is_small(spec, what, operands):
        return 8 if carrier == 0 and not what.wrappers else 4
    if what.method == HARDWARE and not what.wrappers:
        return 2
    if carrier == 2 or what.method >= LONG:
        return 1
    if any(w.order == PAIRWISE or w.pairs for w in what.wrappers):
        return 2 if not random else 1
    if what.method != REGISTER:
        return 1 if random else 4 if carrier == 0 else 2
    if random:
        return 4 if len(random) == 1 and carrier == 0 else 2
    if any(w.cast is not None and w.cast.is_stochastic for w in what.wrappers):
        return 2
    if carrier == 1:
        return 4 if len(what.wrappers) <= 1 else 2
    return 8 if not what.wrappers else 4


@lru_cache(maxsize=4096)
def sides(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> tuple[int, ...]:
    """Outputs of a thread each way that there are kernels for, most first."""
    what = program_of(accumulator, operands.group)
    most = _is_heavy(spec, what, operands, carrier_of(spec, what, operands))
    if operands.table is not None:
        most = min(most, _MOST_LOOKED_UP)
    if is_packed(spec, what, operands):
        most = max(most, 2)
        return tuple(n for n in (8, 4, 2) if n <= most)
    return tuple(n for n in (8, 4, 2, 1) if n <= most)[:3]


def _permutes(what: Program) -> bool:
    return any(w.order in (INTERLEAVED, SHUFFLED) for w in what.wrappers)


@lru_cache(maxsize=4096)
def is_permuted(accumulator: Accumulator, group: int | None = None) -> bool:
    """Whether terms are read in another order than that of k."""
    return _permutes(program_of(accumulator, group))


def _record_literal(record: HardwareRecord) -> str:
    return "{" + ", ".join(f".{field[0]} = {getattr(record, field[0])}" for field in record._fields_) + "}"


def _wrappers_literal(what: Program) -> str:
    texts = []
    for w in what.wrappers:
        cast = cast_literal(_present(w.cast))
        texts.append(f"{{.order = {w.order}, .pairs = {int(w.pairs)}, .cast = {cast}}}")
    return "{" + ", ".join(texts) + "}"


def _scale_literal(fmt: FloatFormat, tensor: bool) -> str:
    code = CodeFormat(*[0] * 12) if fmt == E8M0 else code_format(fmt)
    return f"{{.present = 1, .powers = {int(fmt == E8M0)}, .tensor = {int(tensor)}, .code = {code.literal()}}}"


def table_dtype(spec: GemmSpec, what: Program, operands: Operands) -> torch.dtype:
    """Of a table's entries: the narrowest that the kernel computes with, or widens in one step."""
    table = operands.table
    assert table is not None
    if what.method == INTEGER and _is_small(spec, what, operands):
        return torch.int16 if table.is_short else torch.int32
    return torch.float32 if table.fits_float else torch.float64


def _table_literal(table: TableFacts, dtype: torch.dtype) -> str:
    fields = f".columns = {table.columns}, .entries = {table.entries}, .dtype = {_dtype(dtype)}"
    return f"{{{fields}, .shared = {int(table.is_shared(dtype))}}}"


def _dtype(dtype: torch.dtype) -> str:
    return f"gemmsim::{DTYPES[dtype][0]}"


def gemm_config(spec: GemmSpec, what: Program, operands: Operands, side: int) -> str:
    """Initializer of gemmsim::GemmConfig."""
    on_load = (None if operands.done_a else spec.cast_a, None if operands.done_b else spec.cast_b, spec.out)
    assert not any(c is not None and c.is_stochastic for c in on_load)
    register = "{" + ", ".join(map(str, what.register)) + "}"
    casts = _operand_casts(spec, operands)
    init = _INITS[what.init] if operands.c is not None else 0
    fields = {
        "a": _dtype(operands.a), "b": _dtype(operands.b),
        "c": _dtype(operands.c or torch.float32), "out": _dtype(operands.out),
        "cast_a": cast_literal(casts[0]), "cast_b": cast_literal(casts[1]),
        "mul": cast_literal(_present(what.mul)), "add": cast_literal(cast_record(what.add)),
        "cast_out": cast_literal(_present(spec.out)),
        "done_a": int(operands.done_a), "done_b": int(operands.done_b),
        "layout_a": operands.layout_a, "layout_b": operands.layout_b,
        "fused": int(what.mul is None), "fp32": int(spec.arithmetic == "fp32"),
        "packed": int(is_packed(spec, what, operands)), "method": what.method,
        "carrier": carrier_of(spec, what, operands),
        "rows": side, "cols": side, "init": init, "select": int(operands.select),
        "permuted": int(_permutes(what)),
        "levels": len(what.wrappers), "wrapper": _wrappers_literal(what),
        "reg": register, "hardware": _record_literal(what.hardware or HardwareRecord()),
    }  # fmt: skip
    if operands.count:
        fields["count"] = 1
    for name, codes in (("code_a", operands.code_a), ("code_b", operands.code_b)):
        if codes is not None:
            fields[name] = codes.literal()
    for name, scale in (("scale_a", operands.scale_a), ("scale_b", operands.scale_b)):
        if scale is not None:
            fields[name] = _scale_literal(*scale)
    if operands.finish is not None:
        fields["finish"] = operands.finish.literal()
    if operands.gathered:
        fields["gathered"] = 1
    if operands.table is not None:
        fields["table"] = _table_literal(operands.table, table_dtype(spec, what, operands))
    return "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"


def _shared_bytes(spec: GemmSpec, what: Program, operands: Operands, side: int) -> int:
    """gemmsim::gemm_shared_bytes."""
    carrier = carrier_of(spec, what, operands)
    element = 8 if carrier == 1 or (carrier == 2 and spec.arithmetic != "fp32") else 4
    if is_packed(spec, what, operands):
        element = 2
    elif what.method == INTEGER and _is_small(spec, what, operands):
        element = 4
    table = 0
    if operands.table is not None:
        element, dtype = 4, table_dtype(spec, what, operands)
        if operands.table.is_shared(dtype):
            table = -(-operands.table.entries * DTYPES[dtype][1] // 16) * 16
    depth = DEPTH
    if what.method == HARDWARE and what.hardware is not None:
        depth = 64 if what.hardware.products > 32 else 32
    return 2 * (2 * depth * (SIDE * side + 4) * element + 2 * 3 * 4 * THREADS // 32) + table


@lru_cache(maxsize=4096)
def gemm_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands, side: int) -> GemmKernel:
    """The kernel of ``spec`` with ``accumulator`` (a member, if the spec's own is a palette) and ``side`` x ``side``
    outputs a thread. Its operand and output casts must not be stochastic.
    """
    what = program_of(accumulator, operands.group)
    config, shared = gemm_config(spec, what, operands, side), _shared_bytes(spec, what, operands, side)
    text = (
        '#include "gemm/simt.h"\n'
        f"constexpr gemmsim::GemmConfig kConfig{config};\n"
        f"static_assert(gemmsim::gemm_shared_bytes<kConfig>() == {shared});\n"
        f'extern "C" __global__ void __launch_bounds__({THREADS}, 1) gemmsim_kernel(const gemmsim::GemmArgs args) {{\n'
        "    gemmsim::gemm_body<kConfig>(args, threadIdx.x, blockIdx.x, gridDim.x);\n"
        "}\n"
    )
    names = [DTYPES[t][0].lower() for t in (operands.a, operands.b, operands.out)]
    factors = f"{spec.cast_a or ''}*{spec.cast_b or ''}" if operands.table is None else str(operands.table)
    operation = f"{factors} : {accumulator}" + (f" -> {spec.out}" if spec.out else "")
    if spec.arithmetic == "fp32":
        operation += ", arithmetic=fp32"
    operation += "" if operands.finish is None else str(operands.finish)
    for scale in (operands.scale_a, operands.scale_b):
        operation += "" if scale is None else f", scales {scale[0]}" + (" and one of the tensor" if scale[1] else "")
    layouts = ("any", "terms", "lines")
    how = ("windows/" if operands.gathered else f"{layouts[operands.layout_a]}/") + layouts[operands.layout_b]
    if operands.count:
        operation, names[2] = f"overflows of {operation}", "i64"
    name = f"{operation}, {names[0]} {names[1]} to {names[2]}, {how}, {SIDE * side}x{SIDE * side}"
    random = any(c is not None and c.is_stochastic for c in (what.add, what.mul))
    work = side * side * (1 if random or what.method >= LONG else 4)  # terms of a pass of the loop in most runs
    source = KernelSource("gemm", name, text, THREADS, shared, work=work, hot="loop")
    return GemmKernel(source, SIDE * side, SIDE * side)
