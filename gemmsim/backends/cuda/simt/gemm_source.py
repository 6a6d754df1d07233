"""Makes kernels of family ``gemm``: the lines that instantiate cutlass_kernels/gemm/simt/simt.h for a spec."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from functools import lru_cache

import torch

from gemmsim.arithmetic import Accumulator, GemmSpec, Hardware
from gemmsim.formats import E8M0, FloatFormat
from gemmsim.lowering.abi_constants import INITS, Method
from gemmsim.lowering.carriers import Carrier
from gemmsim.lowering.casts import cast_numbers
from gemmsim.lowering.events import least_normals
from gemmsim.lowering.program import HardwareStep, Program
from gemmsim.lowering.schedule import innermost, keeps_order, levels, stack_bound

from ...dtypes import KERNEL_DTYPES
from ..codes import CodeFormat, code_format
from ..jit.source import KernelSource, cast_literal, double_literal
from .gemm_operands import (
    ANY_STRIDES,
    TERMS_CONTIGUOUS,
    Operands,
    both_facts,
    carrier_for,
    dtype_literal,
    is_packed_run,
    is_small_run,
    operand_casts,
    present,
    program_of,
)
from .table_facts import TableFacts
from .tile_heuristic import Tile

__all__ = [
    "GemmKernel",
    "carrier_bytes",
    "gemm_config",
    "gemm_source",
    "hardware_literal",
    "is_permuted",
    "kernel_name",
    "part_bytes",
    "table_dtype",
]


@dataclass(frozen=True)
class GemmKernel:
    """A kernel and the tile of a block: ``rows`` by ``cols`` outputs."""

    source: KernelSource
    rows: int
    cols: int


def _permutes(what: Program) -> bool:
    if what.scheduled is not None and not keeps_order(what.scheduled, innermost(what.scheduled)):
        return True
    return any(w.order.permutes for w in what.wrappers)


@lru_cache(maxsize=4096)
def is_permuted(accumulator: Accumulator, group: int | None = None) -> bool:
    """Whether terms are read in another order than that of k."""
    return _permutes(program_of(accumulator, group))


def _step_literal(step: HardwareStep) -> str:
    return "{" + ", ".join(f".{one.name} = {int(getattr(step, one.name))}" for one in fields(step)) + "}"


def hardware_literal(instruction: Hardware) -> str:
    """Return the initializer of gemmsim::HardwareModel: one step of ``instruction``."""
    step = program_of(instruction).hardware
    assert step is not None
    return _step_literal(step)


def _wrappers_literal(what: Program) -> str:
    texts = []
    for w in what.wrappers:
        cast = cast_literal(present(w.cast))
        texts.append(f"{{.order = {w.order.value}, .pairs = {int(w.pairs)}, .cast = {cast}}}")
    return "{" + ", ".join(texts) + "}"


def _scale_literal(fmt: FloatFormat, tensor: bool) -> str:
    code = CodeFormat(*[0] * 12) if fmt == E8M0 else code_format(fmt)
    return f"{{.present = 1, .powers = {int(fmt == E8M0)}, .tensor = {int(tensor)}, .code = {code.literal()}}}"


def table_dtype(spec: GemmSpec, what: Program, operands: Operands) -> torch.dtype:
    """Return the dtype of a table's entries: the narrowest that the kernel computes with, or widens in one step."""
    table = operands.table
    assert table is not None
    if is_small_run(spec, what, operands):
        return torch.int16 if table.is_short else torch.int32
    return torch.float32 if table.fits_float else torch.float64


def _table_literal(table: TableFacts, dtype: torch.dtype) -> str:
    fields = f".columns = {table.columns}, .entries = {table.entries}, .dtype = {dtype_literal(dtype)}"
    return f"{{{fields}, .shared = {int(table.is_shared(dtype))}}}"


def _events_literal(what: Program) -> str:
    return f"{{.present = 1, .least = {{{', '.join(map(double_literal, least_normals(what)))}}}}}"


def gemm_config(spec: GemmSpec, what: Program, operands: Operands, tile: Tile, split: int = 0) -> str:
    """Return the initializer of gemmsim::GemmConfig."""
    on_load = (None if operands.done_a else spec.cast_a, None if operands.done_b else spec.cast_b, spec.out)
    assert not any(c is not None and c.is_stochastic for c in on_load)
    register = "{" + ", ".join(map(str, astuple(what.register))) + "}"
    casts = operand_casts(spec, operands)
    init = INITS[what.init] if operands.c is not None else 0
    fields = {
        "a": dtype_literal(operands.a), "b": dtype_literal(operands.b),
        "c": dtype_literal(operands.c or torch.float32), "out": dtype_literal(operands.out),
        "cast_a": cast_literal(casts[0]), "cast_b": cast_literal(casts[1]),
        "mul": cast_literal(present(what.mul)), "add": cast_literal(cast_numbers(what.add)),
        "cast_out": cast_literal(present(spec.out)),
        "done_a": int(operands.done_a), "done_b": int(operands.done_b),
        "layout_a": operands.layout_a, "layout_b": operands.layout_b,
        "fused": int(what.mul is None), "fp32": int(spec.arithmetic == "fp32"),
        "packed": int(is_packed_run(spec, what, operands)), "method": what.method.value,
        "carrier": carrier_for(spec, what, operands).value,
        "rows": tile.rows, "cols": tile.cols, "down": tile.down, "across": tile.across, "depth": tile.depth,
        "loaders": tile.loaders, "stages": tile.stages, "copied": int(tile.copied),
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
    if operands.events:
        fields["counted"] = _events_literal(what)
    if split:
        fields["split"] = split
    if what.scheduled is not None:
        inner = innermost(what.scheduled)
        fields["schedule"] = stack_bound(what.scheduled, inner)
        fields["schedule_levels"] = levels(what.scheduled, inner)
    if operands.table is not None:
        fields["table"] = _table_literal(operands.table, table_dtype(spec, what, operands))
    return "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"


def carrier_bytes(spec: GemmSpec, what: Program, operands: Operands) -> int:
    """Return the bytes of a partial sum: the size of gemmsim::Steps::T."""
    carrier = carrier_for(spec, what, operands)
    return 8 if carrier == Carrier.DOUBLE or (carrier == Carrier.INTEGERS and spec.arithmetic != "fp32") else 4


def part_bytes(spec: GemmSpec, what: Program, operands: Operands) -> int | None:
    """Return the bytes of a part of an exact sum (gemmsim::RunOf's Part).

    The result is None where the order of terms matters, or where the innermost sum is of another kind.
    """
    if what.wrappers:
        return None
    facts = both_facts(spec, operands)
    if what.method == Method.LONG:
        narrow = all(x.top <= 128 and x.quantum >= -149 for x in facts)
        return 8 * (15 if narrow else 73)  # limbs, and a word of flags
    one = what.register
    if what.method != Method.INTEGER or not is_small_run(spec, what, operands) or (one.saturate and not one.at_end):
        return None
    return 8 if not one.saturate and one.bits <= 32 else 16


def _shared_bytes(spec: GemmSpec, what: Program, operands: Operands, tile: Tile) -> int:
    """Return gemmsim::gemm_shared_bytes."""
    first = second = carrier_bytes(spec, what, operands)
    if is_packed_run(spec, what, operands):
        first, second = 4, 2  # a number of A is in both halves of a word
    elif operands.table is not None or is_small_run(spec, what, operands):
        first = second = 4
    table = 0
    if operands.table is not None:
        dtype = table_dtype(spec, what, operands)
        if operands.table.is_shared(dtype):
            table = -(-operands.table.entries * KERNEL_DTYPES[dtype].bytes // 16) * 16
    rows = sum((lines + max(4, 16 // each)) * each for lines, each in ((tile.height, first), (tile.width, second)))
    panels = _copied_bytes(operands, tile) if tile.copied else tile.depth * rows
    words = -(-(3 * 4 * (tile.loaders or tile.threads) // 32) // 16) * 16
    ahead = 0 if tile.copied else 4 if tile.rows * tile.cols < 16 else 1
    row_a, row_b = ((n + max(4, 16 // each)) * each for n, each in ((tile.height, first), (tile.width, second)))
    unused = max(ahead * row_b, ahead * row_a - tile.depth * row_b - 2 * words)
    stages, size = 0, KERNEL_DTYPES[operands.b].bytes
    if tile.stages and not _permutes(what) and (operands.layout_b != ANY_STRIDES or size >= 4):
        stages = tile.stages * tile.width * tile.depth * size
    return -(-(2 * (panels + 2 * words) + table + unused) // 16) * 16 + stages


def _copied_bytes(operands: Operands, tile: Tile) -> int:
    """Return gemmsim::CopiedPanel::SIZE of both operands, in bytes."""
    sides = (tile.height, operands.layout_a), (tile.width, operands.layout_b)
    terms = tile.depth
    return 4 * sum(n * (terms + 4) if layout == TERMS_CONTIGUOUS else terms * (n + 4) for n, layout in sides)


def _reads(spec: GemmSpec, what: Program, operands: Operands, tile: Tile) -> int:
    """Return the reads of global memory per chunk of a thread that computes: gemmsim::Panel::READS of both operands."""
    if tile.loaders:
        return 0
    if tile.copied:
        return (tile.height + tile.width) * tile.depth // tile.threads // 4
    double = carrier_for(spec, what, operands) == Carrier.DOUBLE
    element, total = 2 if is_packed_run(spec, what, operands) else 8 if double else 4, 0
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
    """Return gemmsim::patch_of."""
    lines = [each // terms for terms in (16, 8, 4, 2, 1) if terms <= min(each, most_terms)]
    return min(lines, key=lambda n: 3 * n + (each // n if n < widest else each // widest))


def kernel_name(spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile) -> str:
    """Return a text that says what a kernel computes, of which operands, with which tile."""
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
    if operands.events:
        operation = f"events of {operation}"
    if operands.count:
        operation, names[2] = f"overflows of {operation}", "i64"
    return f"{operation}, {names[0]} {names[1]} to {names[2]}, {how}, {tile}"


@lru_cache(maxsize=4096)
def gemm_source(spec: GemmSpec, accumulator: Accumulator, operands: Operands, tile: Tile, split: int = 0) -> GemmKernel:
    """Return the kernel of ``spec`` with ``accumulator`` (a member, if the spec's own is a palette) and ``tile``.

    Its operand and output casts must not be stochastic. ``split`` is WHOLE or PART of gemmsim::SplitOf.
    """
    what = program_of(accumulator, operands.group)
    config, shared = gemm_config(spec, what, operands, tile, split), _shared_bytes(spec, what, operands, tile)
    text = (
        '#include "gemm/simt/simt.h"\n'
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
    small = is_small_run(spec, what, operands)
    single = random or operands.events or (what.method >= Method.LONG and not small)
    outputs = tile.rows * tile.cols
    ahead = what.method == Method.REGISTER and outputs < 16
    unrolled = 2 if small and operands.table is not None else 8 if ahead else 4
    work = outputs * (1 if single else unrolled)  # terms of a pass of the loop in most innermost sums
    counted = what.method == Method.REGISTER and not what.wrappers and not single
    chunk = (outputs * tile.depth, _reads(spec, what, operands, tile)) if counted else (0, 0)
    source = KernelSource("gemm", name, text, tile.threads, shared, work, "loop", *chunk)
    return GemmKernel(source, tile.height, tile.width)
