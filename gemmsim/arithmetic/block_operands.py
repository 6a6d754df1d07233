"""Operands in block formats: which accumulators take them, and how many terms share a pair of scales."""

from __future__ import annotations

import math
from fractions import Fraction

from ..formats import (
    TENSOR_FORMATS,
    BlockFormat,
    BlockMode,
    Cast,
    CodebookFormat,
    FixedFormat,
    FloatFormat,
    Format,
    Overflow,
    OwnExponentFormat,
    ScaledCast,
    Sharing,
    TensorFormat,
)
from .accumulator import Accumulator
from .errors import spec_error
from .hardware import Hardware
from .scaled import Scaled
from .wrappers import Composite

__all__ = ["check_block_operands", "group_size", "operand_cast", "stored_blocks", "takes_scales"]

Operand = Cast | BlockFormat | TensorFormat | None


def takes_scales(accumulator: Accumulator) -> bool:
    """Whether ``accumulator`` takes elements and scales of block formats apart; others take their products."""
    return isinstance(accumulator, Scaled) or (
        isinstance(accumulator, Hardware) and accumulator.instruction.scale is not None
    )


def stored_blocks(fmt: Operand) -> BlockFormat | None:
    """The block format in which an operand's elements and scales are stored; None where they are not."""
    return fmt.block_format if isinstance(fmt, ScaledCast) else fmt if isinstance(fmt, BlockFormat) else None


def group_size(a: Operand, b: Operand, accumulator: Accumulator) -> int | None:
    """Terms that share a pair of scales where ``accumulator`` takes scales apart from elements; None elsewhere."""
    sizes = [fmt.block_size for fmt in map(stored_blocks, (a, b)) if fmt is not None]
    if not sizes or not takes_scales(accumulator):
        return None
    common = math.gcd(*sizes)
    return common if not isinstance(accumulator, Scaled) or accumulator.n is None else accumulator.n


def check_block_operands(a: Operand, b: Operand, accumulator: Accumulator) -> None:
    """``SpecError`` for scales without a block format, groups across blocks, or instructions that do not take them."""
    operands = (("a", a), ("b", b))
    blocks = {name: fmt for name, fmt in operands if isinstance(fmt, BlockFormat)}
    scaled = {name: fmt for name, fmt in operands if isinstance(fmt, ScaledCast)}
    if accumulator.needs_scales and not blocks and not scaled:
        raise spec_error(
            f"GemmSpec: {accumulator} with operands a={a}, b={b}",
            "scaled(...) with at least one operand in a block format (mxfp8_e4m3, mxfp4, nvfp4, mx(...)) or under "
            "scales (e4m3@1x128)",
            f"Name one, as in 'mxfp8_e4m3 : {accumulator}', or use chunked(...) for unscaled operands.",
        )
    for name, fmt in operands:
        if isinstance(fmt, TENSOR_FORMATS):
            _check_tensor_format(name, fmt, accumulator)
    if scaled:
        _check_scaled_casts(scaled, blocks, accumulator)
        blocks |= {name: fmt.block_format for name, fmt in scaled.items() if fmt.block_format is not None}
    if not blocks:
        return
    if isinstance(accumulator, Scaled):
        _check_group(accumulator, blocks)
        _check_elements(accumulator.inner, blocks)
    elif isinstance(accumulator, Hardware) and accumulator.instruction.scale is not None:
        _check_elements(accumulator, blocks)
        accumulator.scaled_instruction(*blocks.values())
    elif accumulator.operand_casts is not None:
        raise _no_scales(accumulator, blocks)


def _check_tensor_format(name: str, fmt: TensorFormat, accumulator: Accumulator) -> None:
    """Its blocks lie along k, and its values are multiplied as they are."""
    if fmt.sharing is Sharing.INDEX or fmt.dim not in (-1, 0) or (fmt.sharing is Sharing.BLOCK and fmt.dim != -1):
        raise spec_error(
            f"GemmSpec: operand {name}={fmt}",
            "formats whose blocks lie along k in every product, as bfp(bits,block_size), or bfp(bits,tensor)",
            "Leave dim out; round with gemmsim.quantize beforehand for other dimensions.",
        )
    if isinstance(fmt, ScaledCast):
        return
    if takes_scales(accumulator) or accumulator.operand_casts is not None:
        raise spec_error(
            f"GemmSpec: operand {name}={fmt} with {accumulator}",
            "this format with accumulators that take any format",
            "Choose another accumulator, as chunked(...), or a format that this one takes.",
        )


def _check_scaled_casts(
    scaled: dict[str, ScaledCast], blocks: dict[str, BlockFormat], accumulator: Accumulator
) -> None:
    """Binary32 scales stand beside a sum, where ``scaled`` takes them; both operands have the same transform."""
    shown = ", ".join(f"{name}={fmt}" for name, fmt in scaled.items())
    transforms = {(fmt.hadamard, fmt.signs) for fmt in scaled.values()}
    if len(transforms) > 1 or (len(scaled) == 1 and transforms != {(0, None)}):
        raise spec_error(
            f"GemmSpec: operands {shown}",
            "the same Hadamard transform and signs of both operands, which leave the exact product as it is",
            "Write hadamard(n) after both, or after none.",
        )
    binary = [name for name, fmt in scaled.items() if fmt.block_format is None]
    if isinstance(accumulator, Scaled):
        if accumulator.inner.operand_casts is not None:
            for name, fmt in scaled.items():
                operand_cast(fmt.cast, accumulator.inner.operand_casts["ab".index(name)], accumulator, name)
        sizes = [fmt.terms for fmt in scaled.values() if fmt.terms]
        if accumulator.n is not None and math.gcd(*sizes) % accumulator.n:
            allowed = f"n that divides {math.gcd(*sizes)}" if sizes else "no n: one scale for all terms"
            raise spec_error(f"GemmSpec: {accumulator} with operands {shown}", allowed, "Leave n out.")
        if binary and blocks:
            raise spec_error(
                f"GemmSpec: operands {shown} and {', '.join(map(str, blocks.values()))}",
                "binary32 scales together with other binary32 scales, or blocks with scales of powers of two (pow2)",
                "Write /pow2 after the scaled cast.",
            )
    elif takes_scales(accumulator) and binary:
        raise spec_error(
            f"GemmSpec: {accumulator} with operands {shown}",
            "blocks with scales that this instruction takes: powers of two (pow2, floor), or nvfp4",
            "Write /pow2 or /floor after the scaled cast.",
        )
    elif accumulator.operand_casts is not None and not takes_scales(accumulator):
        raise spec_error(
            f"GemmSpec: operands {shown} with {accumulator}, whose steps apply no scales",
            "scaled(...) around it",
            f"Write ': scaled({accumulator}, fp32)'.",
        )


def _check_group(accumulator: Scaled, blocks: dict[str, BlockFormat]) -> None:
    common = math.gcd(*(fmt.block_size for fmt in blocks.values()))
    if accumulator.n is not None and common % accumulator.n:
        sizes = ", ".join(f"{name}={fmt} has blocks of {fmt.block_size}" for name, fmt in blocks.items())
        raise spec_error(
            f"GemmSpec: {accumulator} where {sizes}",
            f"n that divides {common}, so that a group lies in one block of each operand",
            f"Leave n out for {common}.",
        )
    fractions = [
        fmt for fmt in blocks.values() if fmt.element.quantum_exponent < 0 and fmt.mode is not BlockMode.TORCHMX
    ]
    if accumulator.integer_operands and fractions:
        frac = -sum(fmt.element.quantum_exponent for fmt in blocks.values())
        raise spec_error(
            f"GemmSpec: {accumulator} with elements of {fractions[0]}, which are fractions",
            "int(...) for whole numbers, fixed(P, frac) for fractions",
            f"Use scaled(fixed(24, {frac}), ...), which adds multiples of 2^-{frac}.",
        )


def _check_elements(accumulator: Accumulator, blocks: dict[str, BlockFormat]) -> None:
    """The elements must be among the operands that an instruction takes."""
    if accumulator.operand_casts is None:
        return
    for name, taken in zip("ab", accumulator.operand_casts, strict=True):
        if name in blocks:
            operand_cast(Cast(blocks[name].element), taken, accumulator, name)


def _no_scales(accumulator: Accumulator, blocks: dict[str, BlockFormat]) -> Exception:
    inner: Accumulator = accumulator
    while isinstance(inner, Composite):
        inner = inner.inner
    scaled = isinstance(inner, Hardware) and inner.instruction.scale is not None
    asked = f"GemmSpec: block formats {', '.join(map(str, blocks.values()))} with {accumulator}"
    if scaled:
        allowed, do = f"{inner} itself, which takes scales only outermost", f"Write ': {inner}'."
    else:
        allowed, do = (
            "accumulators that take any format, scaled(...), or hw with a block-scaled op",
            f"Write ': scaled({accumulator}, fp32)'.",
        )
    return spec_error(asked, allowed, do)


def operand_cast(given: Cast | None, taken: Cast, accumulator: Accumulator, name: str) -> Cast:
    """``given`` if every value of it is one of ``taken``'s, ``taken`` if none is given.

    Raises:
        SpecError: for a cast with values that ``taken``'s format does not hold.
    """
    if given is None:
        return taken
    if not _holds(taken.format, given):
        raise spec_error(
            f"GemmSpec: operand {name}={given} with {accumulator}, which takes {taken.format}",
            f"{taken.format}, or a format whose every value {taken.format} holds, infinities included",
            f"Leave {name} out for {taken}, or choose another one.",
        )
    return given


def _holds(operand: Format, given: Cast) -> bool:
    """Whether ``operand`` has every number that ``given`` results in. NaN is one in any carrier; -0 counts as 0."""
    fmt = given.format
    if fmt == operand:
        return True
    if not isinstance(operand, FloatFormat):  # a table's, of up to 8 bits
        few = fmt.bits <= 8 and getattr(fmt, "clamp", True) and not isinstance(fmt, OwnExponentFormat)
        return few and not fmt.has_inf and set(fmt.values()) <= set(operand.values())
    if isinstance(fmt, CodebookFormat):
        return all(operand.is_representable(value) for value in fmt.points)
    if isinstance(fmt, FixedFormat):
        # Integers up to 2**p have at most p bits; the end of a two's complement range, -2**(n-1), has one.
        return fmt.clamp and _largest(fmt) * Fraction(2) ** fmt.frac <= 2**operand.p and _inside(operand, fmt)
    infinite = fmt.has_inf and given.overflow is not Overflow.CLAMP
    return fmt.p <= operand.p and _inside(operand, fmt) and (operand.has_inf or not infinite)


def _largest(fmt: Format) -> Fraction:
    return max(fmt.max_fraction, -fmt.min_fraction)


def _inside(operand: FloatFormat, fmt: Format) -> bool:
    """Whether the grid and the range of ``operand`` reach as far."""
    return fmt.quantum_exponent >= operand.quantum_exponent and _largest(fmt) <= operand.max_fraction
