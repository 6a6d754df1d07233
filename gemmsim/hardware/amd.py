"""AMD's rows, CDNA1 to CDNA3. Facts and sources: docs/reference/hardware.md, arXiv:2511.10909.

The NaN that an instruction gives is not known, only that it gives one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from .instruction import Family, Result, Shape
from .step_parameters import ExactSum, FlooredSum, FmaChain, Model, PairwiseTree

__all__ = ["FAMILIES"]

FNUZ = tuple((a, b) for a in ("e4m3fnuz", "e5m2fnuz") for b in ("e4m3fnuz", "e5m2fnuz"))


def _row(arch: str, operands: tuple[tuple[str, str], ...], model: Model, *names: str, widest: int = 16) -> Family:
    """One row; a step takes ``model.products`` products, or all of the instruction's where 0 (at most ``widest``)."""
    d = "f64" if names[0].startswith("f64") else "f32"
    shapes = []
    for name in names:
        k = int(re.findall(r"x(\d+)", name)[1])
        shapes.append(Shape(name, k, model.products or min(widest, k)))
    return Family(arch, "mfma", operands, (Result(d, d, model.out),), tuple(shapes), model)


def _pair(name: str) -> tuple[tuple[str, str], ...]:
    return ((name, name),)


def _f32(arch: str, *names: str) -> Family:
    return _row(arch, _pair("f32"), FmaChain(1, "rne23"), *names)


def _f64(arch: str, *names: str) -> Family:
    return _row(arch, _pair("f64"), FmaChain(1, "rne52"), *names)


#: CDNA1 and CDNA2 name the same instructions.
_F32_NAMES = ("f32_32x32x2f32", "f32_32x32x1f32", "f32_16x16x4f32", "f32_16x16x1f32", "f32_4x4x1f32")
_F16_NAMES = ("f32_32x32x8f16", "f32_32x32x4f16", "f32_16x16x16f16", "f32_16x16x4f16", "f32_4x4x4f16")
_BF16_NAMES = ("f32_32x32x4bf16", "f32_32x32x2bf16", "f32_16x16x8bf16", "f32_16x16x2bf16", "f32_4x4x2bf16")
_BF16_1K_NAMES = (
    "f32_32x32x8bf16_1k",
    "f32_32x32x4bf16_1k",
    "f32_16x16x16bf16_1k",
    "f32_16x16x4bf16_1k",
    "f32_4x4x4bf16_1k",
)


def _common(arch: str, f16: Model, bf16: Model) -> Iterable[Family]:
    """The instructions of CDNA1, which CDNA2 has, too."""
    yield _f32(arch, *_F32_NAMES)
    yield _row(arch, _pair("f16"), f16, *_F16_NAMES)
    yield _row(arch, _pair("bf16"), bf16, *_BF16_NAMES)


def _families() -> Iterable[Family]:
    yield from _common("cdna1", ExactSum(4, "rne23"), ExactSum(2, "rne23"))

    yield from _common("cdna2", PairwiseTree(4, "rne23"), PairwiseTree(2, "rne23"))
    yield _row("cdna2", _pair("bf16"), PairwiseTree(4, "rne23"), *_BF16_1K_NAMES)
    yield _f64("cdna2", "f64_16x16x4f64", "f64_4x4x4f64")

    floored = FlooredSum(0, "rne23")
    blocks = ("f32_32x32x4_2b_{}", "f32_16x16x4_4b_{}", "f32_4x4x4_16b_{}", "f32_32x32x8_{}", "f32_16x16x16_{}")
    for name in ("f16", "bf16"):
        yield _row("cdna3", _pair(name), floored, *(text.format(name) for text in blocks), widest=8)
    yield _row("cdna3", _pair("xf32"), replace(floored, products=4), "f32_16x16x8_xf32", "f32_32x32x4_xf32")
    halves = FlooredSum(16, "rne23", halves=True, window=25)
    yield _row("cdna3", FNUZ, halves, "f32_16x16x32_{a}_{b}", "f32_32x32x16_{a}_{b}")
    yield _f32(
        "cdna3",
        "f32_32x32x1_2b_f32",
        "f32_16x16x1_4b_f32",
        "f32_4x4x1_16b_f32",
        "f32_32x32x2_f32",
        "f32_16x16x4_f32",
    )
    yield _f64("cdna3", "f64_16x16x4_f64", "f64_4x4x4_4b_f64")


#: Every row, oldest architecture first.
FAMILIES: tuple[Family, ...] = tuple(_families())
