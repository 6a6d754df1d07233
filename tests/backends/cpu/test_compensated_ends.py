"""Compensated sums to nearest even of finite data in formats without subnormals, of few bits, with any policy of overflow."""

from __future__ import annotations

import pytest
import torch
from support.cpu import assert_equals_reference, compensated_operands, isas

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

METHODS = ["kahan", "neumaier", "two_sum", "fast_two_sum"]
#: Of infinities, of NaN, saturating, without subnormals, with the ends of binary32, and of as many bits as lanes hold and more.
FORMATS = [
    "e4m3", "e4m3/sat", "e3m4", "e5m2", "e4m3fnuz", "e5m10/ftz", "bf16/ftz", "fp32/ftz", "e5m10/ftz/sat",
    "float(p=3, emin=-4, emax=3)/ftz", "e2m5/ftz", "float(p=11, emin=-5, emax=4)", "float(p=12, emin=-5, emax=4)", "float(p=22, emin=-9, emax=5)",
    "float(p=23, emin=-9, emax=5)", "float(p=26, emin=-9, emax=5)", "float(p=27, emin=-9, emax=5)", "float(p=9, emin=-30, emax=111)",
    "float(p=9, emin=-30, emax=112)",
]  # fmt: skip
#: Of products; one saturates and one becomes infinite, which a saturating register takes another way than its own overflows.
PRODUCTS = ["", ", mul=e4m3", ", mul=e5m10/sat", ", mul=float(p=3, emin=-4, emax=3)/ftz"]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("method", METHODS)
def test_any_end_of_any_format(method, fmt):
    for mul in PRODUCTS:
        for kind in ("normal", "large", "small", "huge", "cancelling", "short"):
            assert_equals_reference(GemmSpec.of(f"{method}({fmt}{mul})"), *compensated_operands(kind, 19))


@pytest.mark.parametrize("method", METHODS)
def test_infinities_and_operands_that_are_none(method):
    a, b = compensated_operands("normal", 12)
    a[1, 3], a[2, 5], b[4, 7] = float("inf"), float("nan"), -float("inf")
    for fmt in ("e4m3", "e5m10/ftz", "bf16/ftz", "e3m4"):
        assert_equals_reference(GemmSpec.of(f"{method}({fmt})"), a, b)


@pytest.mark.parametrize("fmt", ["e4m3", "e5m10/ftz", "bf16/ftz", "float(p=24, emin=-100, emax=100)/ftz"])
def test_operands_in_float64(fmt):
    a, b = (x.double() * (1 + 2.0**-40) for x in compensated_operands("normal", 12))
    for method in METHODS:
        assert_equals_reference(GemmSpec.of(f"{method}({fmt})"), a, b)


def test_they_do_not_take_the_kernel_of_any_mode():
    for name in isas():
        if name in ("baseline", "neon"):
            continue
        cpu.set_isa(name)
        for text in ("kahan(e5m10/ftz)", "neumaier(fp32/ftz)", "two_sum(bf16/ftz)"):
            run = cpu.gemm(*compensated_operands("normal", 19), GemmSpec.of(text), torch.empty(5, 18), 0)
            assert "any mode" not in str(run), (name, text, str(run))
