"""Kernels of family ``gemm``: the few lines that instantiate cutlass_kernels/gemm/simt.h for a spec."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from functools import lru_cache

import torch

from gemmsim.arithmetic import Accumulator, GemmSpec, Hardware
from gemmsim.formats import E8M0, Cast, FloatFormat, RoundingMode
from gemmsim.lowering.accumulators import program
from gemmsim.lowering.carriers import Carrier, Facts, carrier_of, is_packed, is_small, operand_facts
from gemmsim.lowering.cast_numbers import ABSENT, CastNumbers
from gemmsim.lowering.casts import cast_numbers, stays_in_float32
from gemmsim.lowering.events import least_normals
from gemmsim.lowering.numbers import INITS, Method
from gemmsim.lowering.orders import Order
from gemmsim.lowering.program import HardwareStep, Program

from ..dtypes import KERNEL_DTYPES
from .codes import CodeFormat, code_format
from .jit.source import KernelSource, cast_literal, double_literal
from .table_facts import TableFacts
from .tiles import Tile

__all__ = [
    "DEPTH",
    "FinishText",
    "GemmKernel",
    "Operands",
    "carrier_bytes",
    "gemm_config",
    "gemm_source",
    "hardware_literal",
    "is_permuted",
    "kernel_name",
    "part_bytes",
    "program_of",
    "slots_of",
    "table_dtype",
    "tiles_of",
]

#: Terms of a chunk (cutlass_kernels/gemm/config.h).
DEPTH = 16

#: gemmsim::Layout.
ANY_STRIDES, TERMS_CONTIGUOUS, LINES_CONTIGUOUS = 0, 1, 2
#: Most outputs of a thread each way whose products are looked up: enough to hide a load, and room for more threads.
_MOST_LOOKED_UP = 4
#: And whose additions are watched: four counts for each are kept in registers. (One where totals wait in pairs.)
_MOST_WATCHED = 2


@dataclass(frozen=True)
class FinishText:
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
        steps = "" if self.bias is None else f" + {KERNEL_DTYPES[self.bias].label.lower()} bias"
        steps += f" to {self.cast}" if self.cast is not None else ""
        return f"{steps} in {KERNEL_DTYPES[self.work].label.lower()}"


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
    finish: FinishText | None = None
    #: Whether ``a`` is read through tables of offsets.
    gathered: bool = False
    #: The table that products are looked up in; operands are codes, of dtype int16.
    table: TableFacts | None = None
    #: Whether what happens at additions is counted, beside ``out``.
    watch: bool = False


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


def _present(cast: Cast | None) -> CastNumbers:
    return ABSENT if cast is None else cast_numbers(cast)


def _fit_float(spec: GemmSpec, operands: Operands) -> bool:
    """Whether float holds the operands' values, or a table's products."""
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


def _carrier(spec: GemmSpec, what: Program, operands: Operands) -> Carrier:
    narrow = _fit_float(spec, operands) and operands.c != torch.float64
    return carrier_of(what, narrow, spec.arithmetic == "fp32")


def _operand_casts(spec: GemmSpec, operands: Operands) -> tuple[CastNumbers, CastNumbers]:
    """What is known of the factors of terms: a table's are 1 and the product."""
    if operands.table is not None:
        return operands.table.casts()
    return _present(spec.cast_a), _present(spec.cast_b)


def _both_facts(spec: GemmSpec, operands: Operands) -> tuple[Facts, Facts]:
    a, b = _operand_casts(spec, operands)
    return operand_facts(a, KERNEL_DTYPES[operands.a]), operand_facts(b, KERNEL_DTYPES[operands.b])


def _is_packed(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    plain = operands.table is None and not operands.watch
    return plain and is_packed(what, spec.arithmetic == "fp32", _both_facts(spec, operands))


def _is_small(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """Whether the run of an integer register is of ordinary integers."""
    return what.method == Method.INTEGER and not operands.count and is_small(what, _both_facts(spec, operands))


def _in_pairs(what: Program) -> bool:
    return any(w.order == Order.PAIRWISE or w.pairs for w in what.wrappers)


def _is_heavy(spec: GemmSpec, what: Program, operands: Operands, carrier: Carrier) -> int:
    """Most outputs of a thread each way: what its registers and the instruction cache take."""
    random = [c for c in (what.add, what.mul) if c is not None and c.is_stochastic]
    if _is_small(spec, what, operands):
        return 8 if carrier == Carrier.FLOAT and not what.wrappers else 4
    if what.method == Method.HARDWARE and not what.wrappers:
        return 2
    if carrier == Carrier.INTEGERS or what.method >= Method.LONG:
        return 1
    if _in_pairs(what):
        return 2 if not random else 1
    if what.method != Method.REGISTER:
        return 1 if random else 4 if carrier == Carrier.FLOAT else 2
    if random:
        return 4 if len(random) == 1 and carrier == Carrier.FLOAT else 2
    if any(w.cast is not None and w.cast.is_stochastic for w in what.wrappers):
        return 2
    if carrier == Carrier.DOUBLE:
        return 4 if len(what.wrappers) <= 1 else 2
    return 8 if not what.wrappers else 4


@lru_cache(maxsize=4096)
def tiles_of(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> tuple[Tile, ...]:
    """Tiles that there are kernels for: squares, most outputs of a thread first, then those of few rows or columns."""
    what = program_of(accumulator, operands.group)
    packed, most, depth = _is_packed(spec, what, operands), _most(spec, what, operands), _depth(what)
    least = 2 if packed else 1  # packed outputs come in pairs
    found = [Tile(n, n, depth=depth) for n in (8, 4, 2, 1) if least <= n <= max(most, least)][:3]
    if most == 8:
        found[0] = _largest(spec, what, operands)
    if most >= 4:
        found.append(Tile(most, least, depth=depth))
    return tuple(found + _few_rows(what, operands, packed, most))


def _few_rows(what: Program, operands: Operands, packed: bool, most: int) -> list[Tile]:
    """Tiles of 32 columns and few rows, where K is what there is most of: most threads of a block only load."""
    scaled = operands.scale_a is not None or operands.scale_b is not None
    if what.method == Method.HARDWARE or scaled or operands.gathered or operands.select or operands.table is not None:
        return []
    more = {"depth": 8 * DEPTH, "loaders": 128, "stages": 4}
    if packed:
        return [Tile(1, 2, 2, 16, **more), Tile(2, 2, 8, 16, **more)]
    return [Tile(1, 1, 1, 32, **more), Tile(min(4, most), 1, 4, 32, **more)]


def _largest(spec: GemmSpec, what: Program, operands: Operands) -> Tile:
    """The tile of large products: of 128 threads, so that a multiprocessor holds two blocks. A thread has as many
    outputs as its registers have room for beside what they know of the operands; with fewer, chunks are deep."""
    wide = operands.layout_a != ANY_STRIDES and operands.layout_b != ANY_STRIDES
    if _is_packed(spec, what, operands) or _is_lean(spec, what, operands):
        return Tile(8, 16, 16, 8)
    modes = {cast.rounding.mode for cast in (what.add, what.mul) if cast is not None}
    away, directed = RoundingMode.RNA in modes, bool(modes & {RoundingMode.RU, RoundingMode.RD})
    deep = wide and not operands.gathered and (directed or not away)
    if directed or (away and not wide):  # 64 registers and what their steps hold are too many
        return Tile(8, 4, 16, 16, depth=2 * DEPTH if deep else DEPTH)
    return Tile(8, 8, 16, 8, depth=2 * DEPTH if deep else DEPTH)


def _is_lean(spec: GemmSpec, what: Program, operands: Operands) -> bool:
    """Whether formats prove that every product lies on the register's grid, and nothing is rounded while loaded."""
    if what.method != Method.REGISTER or what.mul is not None or operands.gathered or operands.c is not None:
        return False
    casts = (None if operands.done_a else spec.cast_a, None if operands.done_b else spec.cast_b)
    if any(cast is not None for cast in casts) or operands.code_a is not None or operands.code_b is not None:
        return False
    add, (a, b) = cast_numbers(what.add), _both_facts(spec, operands)
    nearest = what.add.rounding.mode is RoundingMode.RNE and add.p <= 11
    return nearest and a.p + b.p <= 24 and a.quantum + b.quantum >= add.quantum


def _most(spec: GemmSpec, what: Program, operands: Operands) -> int:
    """Most outputs of a thread each way."""
    most = _is_heavy(spec, what, operands, _carrier(spec, what, operands))
    if operands.table is not None:
        most = min(most, _MOST_LOOKED_UP)
    if operands.watch:
        most = min(most, 1 if _in_pairs(what) else _MOST_WATCHED)
    return most


def _depth(what: Program) -> int:
    """Terms of a chunk: a chip's instruction takes up to 64 at once."""
    if what.method == Method.HARDWARE and what.hardware is not None:
        return 64 if what.hardware.products > 32 else 32
    return DEPTH


@lru_cache(maxsize=4096)
def slots_of(spec: GemmSpec, accumulator: Accumulator, operands: Operands) -> float:
    """Instructions of a product, roughly, for the choice of a tile: of the loop that well-behaved numbers take."""
    what = program_of(accumulator, operands.group)
    if _is_packed(spec, what, operands):
        return 0.5
    return 3.0 if what.method in (Method.REGISTER, Method.INTEGER) and not operands.watch else 20.0


def _permutes(what: Program) -> bool:
    return any(w.order.permutes for w in what.wrappers)


@lru_cache(maxsize=4096)
def is_permuted(accumulator: Accumulator, group: int | None = None) -> bool:
    """Whether terms are read in another order than that of k."""
    return _permutes(program_of(accumulator, group))


def _step_literal(step: HardwareStep) -> str:
    return "{" + ", ".join(f".{one.name} = {int(getattr(step, one.name))}" for one in fields(step)) + "}"


def hardware_literal(instruction: Hardware) -> str:
    """Initializer of gemmsim::HardwareModel: one step of ``instruction``."""
    step = program_of(instruction).hardware
    assert step is not None
    return _step_literal(step)


def _wrappers_literal(what: Program) -> str:
    texts = []
    for w in what.wrappers:
        cast = cast_literal(_present(w.cast))
        texts.append(f"{{.order = {w.order.value}, .pairs = {int(w.pairs)}, .cast = {cast}}}")
    return "{" + ", ".join(texts) + "}"


def _scale_literal(fmt: FloatFormat, tensor: bool) -> str:
    code = CodeFormat(*[0] * 12) if fmt == E8M0 else code_format(fmt)
    return f"{{.present = 1, .powers = {int(fmt == E8M0)}, .tensor = {int(tensor)}, .code = {code.literal()}}}"


def table_dtype(spec: GemmSpec, what: Program, operands: Operands) -> torch.dtype:
    """Of a table's entries: the narrowest that the kernel computes with, or widens in one step."""
    table = operands.table
    assert table is not None
    if _is_small(spec, what, operands):
        return torch.int16 if table.is_short else torch.int32
    return torch.float32 if table.fits_float else torch.float64


def _table_literal(table: TableFacts, dtype: torch.dtype) -> str:
    fields = f".columns = {table.columns}, .entries = {table.entries}, .dtype = {_dtype(dtype)}"
    return f"{{{fields}, .shared = {int(table.is_shared(dtype))}}}"


def _watch_literal(what: Program) -> str:
    return f"{{.present = 1, .least = {{{', '.join(map(double_literal, least_normals(what)))}}}}}"


def _dtype(dtype: torch.dtype) -> str:
    return f"gemmsim::{KERNEL_DTYPES[dtype].label}"


def gemm_config(spec: GemmSpec, what: Program, operands: Operands, tile: Tile, split: int = 0) -> str:
    """Initializer of gemmsim::GemmConfig."""
    on_load = (None if operands.done_a else spec.cast_a, None if operands.done_b else spec.cast_b, spec.out)
    assert not any(c is not None and c.is_stochastic for c in on_load)
    register = "{" + ", ".join(map(str, astuple(what.register))) + "}"
    casts = _operand_casts(spec, operands)
    init = INITS[what.init] if operands.c is not None else 0
    fields = {
        "a": _dtype(operands.a), "b": _dtype(operands.b),
        "c": _dtype(operands.c or torch.float32), "out": _dtype(operands.out),
        "cast_a": cast_literal(casts[0]), "cast_b": cast_literal(casts[1]),
        "mul": cast_literal(_present(what.mul)), "add": cast_literal(cast_numbers(what.add)),
        "cast_out": cast_literal(_present(spec.out)),
        "done_a": int(operands.done_a), "done_b": int(operands.done_b),
        "layout_a": operands.layout_a, "layout_b": operands.layout_b,
        "fused": int(what.mul is None), "fp32": int(spec.arithmetic == "fp32"),
        "packed": int(_is_packed(spec, what, operands)), "method": what.method.value,
        "carrier": _carrier(spec, what, operands).value,
        "rows": tile.rows, "cols": tile.cols, "down": tile.down, "across": tile.across, "depth": tile.depth,
        "loaders": tile.loaders, "stages": tile.stages,
        "init": init, "select": int(operands.select),
        "permuted": int(_permutes(what)),
        "levels": len(what.wrappers), "wrapper": _wrappers_literal(what),
        "reg": register, "hardware": _step_literal(what.hardware or HardwareStep()),
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
    if operands.watch:
        fields["watch"] = _watch_literal(what)
    if split:
        fields["split"] = split
    if operands.table is not None:
        fields["table"] = _table_literal(operands.table, table_dtype(spec, what, operands))
    return "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"


def carrier_bytes(spec: GemmSpec, what: Program, operands: Operands) -> int:
    """Of a total: gemmsim::Steps::T."""
    carrier = _carrier(spec, what, operands)
    return 8 if carrier == Carrier.DOUBLE or (carrier == Carrier.INTEGERS and spec.arithmetic != "fp32") else 4


def part_bytes(spec: GemmSpec, what: Program, operands: Operands) -> int | None:
    """Of a part of an exact sum (gemmsim::RunOf's Part), or None where the order of terms matters or has a run of
    another kind."""
    if what.wrappers:
        return None
    facts = _both_facts(spec, operands)
    if what.method == Method.LONG:
        narrow = all(x.top <= 128 and x.quantum >= -149 for x in facts)
        return 8 * (15 if narrow else 73)  # limbs, and a word of flags
    one = what.register
    if what.method != Method.INTEGER or not _is_small(spec, what, operands) or (one.saturate and not one.at_end):
        return None
    return 8 if not one.saturate and one.bits <= 32 else 16


def _shared_bytes(spec: GemmSpec, what: Program, operands: Operands, tile: Tile) -> int:
    """gemmsim::gemm_shared_bytes."""
    first = second = carrier_bytes(spec, what, operands)
    if _is_packed(spec, what, operands):
        first, second = 4, 2  # numbers of A stand in both halves of a word
    elif operands.table is not None or _is_small(spec, what, operands):
        first = second = 4
    table = 0
    if operands.table is not None:
        dtype = table_dtype(spec, what, operands)
        if operands.table.is_shared(dtype):
            table = -(-operands.table.entries * KERNEL_DTYPES[dtype].bytes // 16) * 16
    rows = sum((lines + max(4, 16 // each)) * each for lines, each in ((tile.height, first), (tile.width, second)))
    words = -(-(3 * 4 * (tile.loaders or tile.threads) // 32) // 16) * 16
    unused = (4 if tile.rows * tile.cols < 16 else 1) * (tile.width + max(4, 16 // second)) * second
    stages, size = 0, KERNEL_DTYPES[operands.b].bytes
    if tile.stages and not _permutes(what) and (operands.layout_b != ANY_STRIDES or size >= 4):
        stages = tile.stages * tile.width * tile.depth * size
    return -(-(2 * (tile.depth * rows + 2 * words) + table + unused) // 16) * 16 + stages


def _reads(spec: GemmSpec, what: Program, operands: Operands, tile: Tile) -> int:
    """Reads of global memory of a thread that computes, for a chunk: gemmsim::Panel::READS of both operands."""
    if tile.loaders:
        return 0
    element = 2 if _is_packed(spec, what, operands) else 8 if _carrier(spec, what, operands) == Carrier.DOUBLE else 4
    total = 0
    for lines, dtype, layout, widest in (
        (tile.height, operands.a, operands.layout_a, 16 // max(element, 4)),
        (tile.width, operands.b, operands.layout_b, 16 // element),
    ):
        each, wide = lines * tile.depth // tile.threads, 16 // KERNEL_DTYPES[dtype].bytes
        if layout == TERMS_CONTIGUOUS:
            total += _lines_of_patch(each, min(wide, tile.depth), widest)
        else:
            total += each if layout == ANY_STRIDES else each // min(wide, each)
    return total


def _lines_of_patch(each: int, most_terms: int, widest: int) -> int:
    """gemmsim::patch_of."""
    lines = [each // terms for terms in (16, 8, 4, 2, 1) if terms <= min(each, most_terms)]
    return min(lines, key=lambda n: 3 * n + (each // n if n < widest else each // widest))


def kernel_name(spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile) -> str:
    """What a kernel computes, of which operands, with which tile."""
    names = [KERNEL_DTYPES[t].label.lower() for t in (operands.a, operands.b, operands.out)]
    factors = f"{spec.cast_a or ''}*{spec.cast_b or ''}" if operands.table is None else str(operands.table)
    operation = f"{factors} : {accumulator}" + (f" -> {spec.out}" if spec.out else "")
    if spec.arithmetic == "fp32":
        operation += ", arithmetic=fp32"
    operation += "" if operands.finish is None else str(operands.finish)
    for scale in (operands.scale_a, operands.scale_b):
        operation += "" if scale is None else f", scales {scale[0]}" + (" and one of the tensor" if scale[1] else "")
    layouts = ("any", "terms", "lines")
    how = ("windows/" if operands.gathered else f"{layouts[operands.layout_a]}/") + layouts[operands.layout_b]
    if operands.watch:
        operation = f"events of {operation}"
    if operands.count:
        operation, names[2] = f"overflows of {operation}", "i64"
    return f"{operation}, {names[0]} {names[1]} to {names[2]}, {how}, {tile}"


@lru_cache(maxsize=4096)
def gemm_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile, split: int = 0) -> GemmKernel:
    """The kernel of ``spec`` with ``accumulator`` (a member, if the spec's own is a palette) and ``tile``. Its operand
    and output casts must not be stochastic. ``split``: gemmsim::SplitOf, of which WHOLE or PART.
    """
    what = program_of(accumulator, operands.group)
    config, shared = gemm_config(spec, what, operands, tile, split), _shared_bytes(spec, what, operands, tile)
    text = (
        '#include "gemm/simt.h"\n'
        f"constexpr gemmsim::GemmConfig kConfig{config};\n"
        f"static_assert(gemmsim::gemm_shared_bytes<kConfig>() == {shared});\n"
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1) '
        "gemmsim_kernel(const gemmsim::GemmArgs args) {\n"
        "    gemmsim::gemm_body<kConfig>(args, threadIdx.x, blockIdx.x, gridDim.x);\n"
        "}\n"
    )
    name = kernel_name(spec, accumulator, operands, tile)
    name = f"parts of {name}" if split else name
    random = any(c is not None and c.is_stochastic for c in (what.add, what.mul))
    single = random or operands.watch or what.method >= Method.LONG
    outputs = tile.rows * tile.cols
    ahead = what.method == Method.REGISTER and outputs < 16
    work = outputs * (1 if single else 8 if ahead else 4)  # terms of a pass of the loop in most runs
    counted = what.method == Method.REGISTER and not what.wrappers and not single
    chunk = (outputs * tile.depth, _reads(spec, what, operands, tile)) if counted else (0, 0)
    source = KernelSource("gemm", name, text, tile.threads, shared, work, "loop", *chunk)
    return GemmKernel(source, tile.height, tile.width)
