"""NVIDIA's rows, Volta to RTX Blackwell. Facts and sources: docs/reference/hardware.md, arXiv:2511.10909.

Written down per architecture even where two agree, so that a measurement on silicon changes one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .instruction import MODEL, RULE, Family, Shape, Source
from .models import FmaChain, FusedBlock, ScaledGroups

__all__ = ["FAMILIES"]

F16 = (("f16", "f16"),)
BF16 = (("bf16", "bf16"),)
TF32 = (("tf32", "tf32"),)
FP8 = tuple((a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
F64 = (("f64", "f64"),)
FP4 = (("e2m1", "e2m1"),)

#: (c, d, conversion)
TO_F32 = (("f32", "f32", "rz23"),)
TO_BOTH = (*TO_F32, ("f16", "f16", "rne10"))
#: f32 accumulator with f16 C: C is widened first.
TO_BOTH_WIDENED = (*TO_BOTH, ("f16", "f32", "rz23"))
#: FP8 on Ada and Hopper's wgmma: 13 fraction bits are all that the register keeps.
TO_E8M13 = (("f32", "f32", "e8m13"), ("f16", "f16", "rne10"))
TO_F64 = (("f64", "f64", "rne52"),)


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
        Family(arch, "mma", F16, TO_BOTH, halves, _fused(kept)),
        Family(arch, "mma", BF16, TO_F32, halves, _fused(kept)),
        Family(arch, "mma", TF32, TO_F32, quarters, _fused(kept)),
    ]


def _fp8_scaled(arch: str, unit: str, shape: str) -> Family:
    return Family(arch, unit, FP8, TO_F32, (_shape(shape),), _fused(25), "ue8m0", 32)


def _fp4_scaled(arch: str, unit: str, shape: str, scale: str, block: int, source: Source = MODEL) -> Family:
    return Family(arch, unit, FP4, TO_F32, (_shape(shape),), ScaledGroups(0, "rz23", 35), scale, block, source)


def _families() -> Iterable[Family]:
    yield Family("volta", "mma", F16, TO_BOTH_WIDENED, (_shape("m8n8k4"),), _fused(23))

    yield Family("turing", "mma", F16, TO_BOTH_WIDENED, (_shape("m8n8k4"),), _fused(24))
    yield Family("turing", "mma", F16, TO_BOTH, (_shape("m16n8k8"),), _fused(24))

    yield from _split_or_whole("ampere", 24, steps=2)
    yield _f64("ampere", "m8n8k4")

    yield from _split_or_whole("ada", 24, steps=2)
    yield Family("ada", "mma", FP8, TO_E8M13, (_shape("m16n8k16"), _shape("m16n8k32", 2)), _fused(13))
    yield _f64("ada", "m8n8k4")

    yield from _split_or_whole("hopper", 25, steps=1)
    yield _f64("hopper", "m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    yield Family("hopper", "wgmma", TF32, TO_F32, (_shape("m64n8k8"),), _fused(25))
    yield Family("hopper", "wgmma", F16, TO_BOTH, (_shape("m64n8k16"),), _fused(25))
    yield Family("hopper", "wgmma", BF16, TO_F32, (_shape("m64n8k16"),), _fused(25))
    yield Family("hopper", "wgmma", FP8, TO_E8M13, (_shape("m64n8k32"),), _fused(13))

    yield from _split_or_whole("blackwell", 25, steps=1)
    yield _f64("blackwell", "m8n8k4")
    yield Family("blackwell", "tcgen05mma", TF32, TO_F32, (_shape("m64n8k8"),), _fused(25))
    yield Family("blackwell", "tcgen05mma", F16, TO_BOTH, (_shape("m64n8k16"),), _fused(25))
    yield Family("blackwell", "tcgen05mma", (*BF16, ("bf16", "f16")), TO_F32, (_shape("m64n8k16"),), _fused(25))
    yield Family("blackwell", "tcgen05mma", (("f16", "bf16"),), TO_F32, (_shape("m64n8k16"),), _fused(25), source=RULE)
    yield Family("blackwell", "tcgen05mma", FP8, TO_BOTH, (_shape("m64n8k32"),), _fused(25))
    yield _fp8_scaled("blackwell", "tcgen05mma_block_scale", "m128n8k32")
    for scale, block in (("ue8m0", 32), ("ue8m0", 16), ("ue4m3", 16)):
        yield _fp4_scaled("blackwell", "tcgen05mma_block_scale", "m128n8k64", scale, block)

    yield from _split_or_whole("rtx_blackwell", 25, steps=1)
    yield _f64("rtx_blackwell", "m8n8k4")
    yield Family("rtx_blackwell", "mma", FP8, TO_BOTH, (_shape("m16n8k16"), _shape("m16n8k32")), _fused(25))
    yield _fp8_scaled("rtx_blackwell", "mma_block_scale", "m16n8k32")
    yield _fp4_scaled("rtx_blackwell", "mma_block_scale", "m16n8k64", "ue8m0", 32, RULE)
    yield _fp4_scaled("rtx_blackwell", "mma_block_scale", "m16n8k64", "ue8m0", 16)
    yield _fp4_scaled("rtx_blackwell", "mma_block_scale", "m16n8k64", "ue4m3", 16)


#: Every row, oldest architecture first.
FAMILIES: tuple[Family, ...] = tuple(_families())
