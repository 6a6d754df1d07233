"""Steps that no watch helps, in two rounding modes of the processor, and nearest sums that are rounded in another direction.

Sums on midpoints, small ones, overflows and exact zeros must be frequent, or the kernels that watch for them do not give up.
"""

from __future__ import annotations

import pytest
import torch
from support.cpu import assert_equals_reference, frequent_operands

from gemmsim.arithmetic import GemmSpec

#: Of every kind of nearest rounding: none at an end, saturating, infinities, NaN, no subnormals, whole numbers and fractions.
FORMATS = [
    "e4m3",
    "e4m3/sat",
    "e3m4",
    "e5m2",
    "e5m10/ftz",
    "e4m3/ftz/sat",
    "int8",
    "fixed(16,8)",
    "e8m12",
    "e5m10",
    "bf16",
    "e2m3",
]
PRODUCTS = ["", "e4m3", "e5m10/ftz", "int8", "e8m12", "e5m2"]


@pytest.mark.parametrize("kind", ["normal", "ties", "small", "large", "zeros"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_nearest_steps_of_any_kind(fmt, kind):
    for product in PRODUCTS:
        text = f":mul={product}, add={fmt}" if product else f":{fmt}"
        assert_equals_reference(GemmSpec.of(text), *frequent_operands(kind))


@pytest.mark.parametrize("around", ["chunked(40, {})", "interleaved(2, {})", "pairwise({}, 40)"])
@pytest.mark.parametrize("fmt", ["e4m3", "int8", "e5m10/ftz"])
def test_orders_of_them(fmt, around):
    for kind in ("ties", "zeros"):
        assert_equals_reference(GemmSpec.of(":" + around.format(fmt)), *frequent_operands(kind))


@pytest.mark.parametrize("mode", ["rtz", "rna", "ro", "ru", "rd", "sr8", "sr12", "sr18"])
@pytest.mark.parametrize(
    "fmt", ["e5m10", "e4m3", "bf16", "e5m10/ftz", "e8m12", "e4m3/sat", "e3m4", "e5m2", "e4m3/ftz", "int8"]
)
def test_nearest_sums_rounded_in_another_direction(fmt, mode):
    for kind in ("normal", "ties", "small", "large", "late", "zeros"):
        spec = GemmSpec.of(f":{fmt}/{mode}, arithmetic=fp32")
        assert_equals_reference(spec, *frequent_operands(kind, 101 if kind == "late" else 41), seed=7)
    assert_equals_reference(
        GemmSpec.of(f":interleaved(3, {fmt}/{mode}), arithmetic=fp32"), *frequent_operands("small", 63), seed=7
    )


@pytest.mark.parametrize("mode", ["rtz", "rna", "ro", "sr8"])
def test_nearest_sums_are_not_those_of_the_mode(mode):
    """Of 24 bits and a bit below: a sum cut toward zero would be the one below."""
    a = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    b = torch.tensor([[1 + 2.0**-10] * 9, [2.0**-10 - 2.0**-26] * 9])
    assert_equals_reference(GemmSpec.of(f":e5m10/{mode}, arithmetic=fp32"), a, b, seed=3)
