"""NVIDIA's rows, Volta to RTX Blackwell. Facts and sources: docs/reference/hardware.md, arXiv:2511.10909.

Written down per architecture even where two agree, so that a measurement on silicon changes one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .instruction import Family, Result, Shape
from .step_parameters import FmaChain, FusedBlock, ScaledGroups, TwoBlocks

__all__ = ["FAMILIES"]

F16 = (("f16", "f16"),)
BF16 = (("bf16", "bf16"),)
TF32 = (("tf32", "tf32"),)
F64 = (("f64", "f64"),)
FP4 = (("e2m1", "e2m1"),)


def _pairs(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a in names for b in names)


FP8 = _pairs("e4m3", "e5m2")
#: The operands of kinds f8f6f4 and mxf8f6f4.
FP8_FP6_FP4 = _pairs("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")

TO_F64 = (Result("f64", "f64", "rne52"),)
#: Block-scaled FP4.
FP4_LEAST = -139


def _to_f32(bits: int, out: str = "rz23") -> tuple[Result, ...]:
    """``bits``: F of the unit, from which the least exponent follows, also where FP8 keeps fewer."""
    return (Result("f32", "f32", out, -(108 + bits)),)


def _to_f16(bits: int) -> tuple[Result, ...]:
    return (Result("f16", "f16", "rne10", -(bits - 4)),)


def _to_both(bits: int, out: str = "rz23") -> tuple[Result, ...]:
    return (*_to_f32(bits, out), *_to_f16(bits))


def _to_both_widened(bits: int) -> tuple[Result, ...]:
    """f32 accumulator with f16 C, too: C is widened first."""
    return (*_to_both(bits), Result("f16", "f32", "rz23", -(108 + bits)))


def _shape(text: str, steps: int = 1) -> Shape:
    k = int(text.rpartition("k")[2])
    return Shape(text, k, k // steps)


def _fused(kept: int) -> FusedBlock:
    return FusedBlock(0, "rz23", kept)


def _f64(arch: str, *shapes: str) -> Family:
    rows = tuple(replace(_shape(text), products=1) for text in shapes)
    return Family(arch, "mma", F64, TO_F64, rows, FmaChain(1, "rne52"))


def _split_or_whole(arch: str, kept: int, steps: int) -> list[Family]:
    """mma.sync on f16, bf16, tf32: ``steps`` = 2 where the larger shape is made of two steps."""
    halves = (_shape("m16n8k8"), _shape("m16n8k16", steps))
    quarters = (_shape("m16n8k4"), _shape("m16n8k8", steps))
    return [
        Family(arch, "mma", F16, _to_both(kept), halves, _fused(kept)),
        Family(arch, "mma", BF16, _to_f32(kept), halves, _fused(kept)),
        Family(arch, "mma", TF32, _to_f32(kept), quarters, _fused(kept)),
    ]


def _fp8_without_unit(arch: str) -> Family:
    """mma.sync on FP8 where the chip has no unit for it: two binary16 steps from +0, then C."""
    shapes = (_shape("m16n8k16"), _shape("m16n8k32"))
    return Family(arch, "mma", FP8, _to_both(25), shapes, TwoBlocks(0, "rz23", 25), vectors=False)


def _mxf8f6f4(arch: str, unit: str, shape: str) -> Family:
    return Family(arch, unit, FP8_FP6_FP4, _to_f32(25), (_shape(shape),), _fused(25), "ue8m0", 32, "mxf8f6f4")


def _fp4_scaled(arch: str, unit: str, shape: str) -> Iterable[Family]:
    result, shapes, model = (Result("f32", "f32", "rz23", FP4_LEAST),), (_shape(shape),), ScaledGroups(0, "rz23", 35)
    for kind, scale, block in (
        ("mxf4nvf4", "ue4m3", 16),
        ("mxf4nvf4", "ue8m0", 16),
        ("mxf4nvf4", "ue8m0", 32),
        ("mxf4", "ue8m0", 32),
    ):
        yield Family(arch, unit, FP4, result, shapes, model, scale, block, kind)


def _families() -> Iterable[Family]:
    yield Family("volta", "mma", F16, _to_both_widened(23), (_shape("m8n8k4"),), _fused(23))

    # The instruction kept for Volta's sake, with Volta's F.
    yield Family("turing", "mma", F16, _to_both_widened(23), (_shape("m8n8k4"),), _fused(23))
    yield Family("turing", "mma", F16, _to_both(24), (_shape("m16n8k8"),), _fused(24))

    yield from _split_or_whole("ampere", 24, steps=2)
    yield _f64("ampere", "m8n8k4")

    fp8 = (_shape("m16n8k16"), _shape("m16n8k32", 2))
    yield from _split_or_whole("ada", 24, steps=2)
    yield Family("ada", "mma", FP8, _to_both(24, "e8m13"), fp8, _fused(13))
    yield _f64("ada", "m8n8k4")

    yield from _split_or_whole("hopper", 25, steps=1)
    yield _fp8_without_unit("hopper")
    yield _f64("hopper", "m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    yield Family("hopper", "wgmma", TF32, _to_f32(25), (_shape("m64n8k8"),), _fused(25))
    yield Family("hopper", "wgmma", F16, _to_both(25), (_shape("m64n8k16"),), _fused(25))
    yield Family("hopper", "wgmma", BF16, _to_f32(25), (_shape("m64n8k16"),), _fused(25))
    yield Family("hopper", "wgmma", FP8, _to_both(25, "e8m13"), (_shape("m64n8k32"),), _fused(13))

    yield from _split_or_whole("blackwell", 25, steps=1)
    yield _fp8_without_unit("blackwell")
    yield _f64("blackwell", "m8n8k4")
    unit, half = "tcgen05mma", (_shape("m64n8k16"),)
    yield Family("blackwell", unit, TF32, _to_f32(25), (_shape("m64n8k8"),), _fused(25), kind="tf32")
    yield Family("blackwell", unit, F16, _to_both(25), half, _fused(25), kind="f16")
    yield Family("blackwell", unit, (*BF16, ("bf16", "f16")), _to_f32(25), half, _fused(25), kind="f16")
    yield Family("blackwell", unit, (("f16", "bf16"),), _to_f32(25), half, _fused(25), kind="f16", vectors=False)
    yield Family("blackwell", unit, FP8_FP6_FP4, _to_both(25), (_shape("m64n8k32"),), _fused(25), kind="f8f6f4")
    yield _mxf8f6f4("blackwell", "tcgen05mma_block_scale", "m128n8k32")
    yield from _fp4_scaled("blackwell", "tcgen05mma_block_scale", "m128n8k64")

    yield from _split_or_whole("rtx_blackwell", 25, steps=1)
    yield _f64("rtx_blackwell", "m8n8k4")
    yield Family("rtx_blackwell", "mma", FP8, _to_both(25), (_shape("m16n8k16"), _shape("m16n8k32")), _fused(25))
    yield Family("rtx_blackwell", "mma", FP8_FP6_FP4, _to_both(25), (_shape("m16n8k32"),), _fused(25), kind="f8f6f4")
    yield _mxf8f6f4("rtx_blackwell", "mma_block_scale", "m16n8k32")
    yield from _fp4_scaled("rtx_blackwell", "mma_block_scale", "m16n8k64")


#: Every row, oldest architecture first.
FAMILIES: tuple[Family, ...] = tuple(_families())
