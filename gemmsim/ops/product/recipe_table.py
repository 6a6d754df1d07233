"""The table of a recipe: what each operand of its three products is, how it is scaled and rounded, and how sums go."""

from __future__ import annotations

from importlib import import_module

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.recipe_words import recipe_call
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, Cast, ScaledCast

from .affine_formats import QAffineFormats

__all__ = ["recipe_table", "source_of"]

_OPERANDS = {
    "fprop": ("input", "weight"),
    "dgrad": ("gradient", "weight"),
    "wgrad": ("gradient", "input"),
}
_HEAD = ("product", "operand", "elements", "scale for", "scale", "rounding", "before")


def recipe_table(formats: QAffineFormats) -> str:
    """A line for each operand of the three products, then the sums; PyTorch's own products say so."""
    lines: list[tuple[str, ...]] = [_HEAD]
    sums = []
    for role, operands in _OPERANDS.items():
        spec: GemmSpec | None = getattr(formats, role)
        if spec is None:
            sums.append(f"{role}: PyTorch's own product")
            continue
        for name, fmt in zip(operands, (spec.a, spec.b), strict=True):
            own = formats.use_scaling and isinstance(fmt, Cast)
            lines.append((role, name, *_operand(fmt, own, formats.scale_margin)))
        sums.append(f"{role}: {spec.accumulator}" + (f" -> {spec.out}" if spec.out is not None else ""))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*table, *(f"sums of {one}" for one in sums)])


def _operand(fmt: object, scaled: bool, margin: int) -> tuple[str, ...]:
    if isinstance(fmt, ScaledCast):
        before = [f"as stored in {fmt.stored}"] if fmt.stored is not None else []
        before += [f"Hadamard of {fmt.hadamard}"] if fmt.hadamard else []
        before += [f"times {fmt.gain:g}"] if fmt.gain != 1.0 else []
        scale = f"{fmt.rule}, a power of two" if fmt.power else str(fmt.rule)
        scale += f", of {fmt.delayed} calls before" if fmt.delayed else ""
        return str(fmt.cast), fmt.granularity, scale, fmt.rounding.describe(), "; ".join(before)
    if isinstance(fmt, BlockFormat):
        second = ", one for the tensor" if fmt.tensor_scale else ""
        return str(fmt.element), f"1x{fmt.block_size}", f"{fmt.scale}, {fmt.rule}{second}", fmt.rounding.describe(), ""
    if isinstance(fmt, Cast):
        end = f", margin {margin}" if margin else ""
        block, scale = ("tensor", f"a power of two{end}") if scaled else ("", "")
        return str(fmt), block, scale, fmt.rounding.describe(), ""
    return (str(fmt), "", "", "", "") if isinstance(fmt, TENSOR_FORMATS) else ("as it is", "", "", "", "")


def source_of(text: str) -> str:
    """The first sentence and the source that a recipe's documentation has; "" for other text."""
    call = recipe_call(text)
    if call is None or call.name == "all_products":
        return ""
    paragraphs = (getattr(import_module("gemmsim.recipes"), call.name).__doc__ or "").split("\n\n")
    source = next((one for one in paragraphs if one.strip().startswith("Source:")), "")
    return " ".join(paragraphs[0].split()) + ("\n" + " ".join(source.split()).replace("``", "") if source else "")
