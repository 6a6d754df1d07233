"""Compensated sums of finite data in one mode other than nearest even: with or without subnormals, whatever becomes of overflows."""

from __future__ import annotations

import pytest
import torch
from support.cpu import assert_equals_reference, compensated_operands, isas

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

METHODS = ["kahan", "neumaier", "two_sum", "fast_two_sum"]
MODES = ["rna", "rtz", "ru", "rd", "ro", "sr8", "sr20"]
#: Of infinities, of NaN, saturating, without subnormals, with the ends of binary32, and of as many bits as lanes hold and more.
FORMATS = [
    "e4m3{}", "e4m3/sat{}", "e3m4{}", "e5m2{}", "e5m10{}", "e5m10/ftz{}", "bf16{}", "bf16/ftz{}", "fp32/ftz{}",
    "float(p=3, emin=-4, emax=3)/ftz{}", "float(p=22, emin=-9, emax=5){}", "float(p=9, emin=-30, emax=112){}",
]  # fmt: skip
KINDS = ["normal", "large", "small", "cancelling", "short"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_any_end_of_any_format(method, mode):
    for fmt in FORMATS:
        for kind in KINDS:
            assert_equals_reference(GemmSpec.of(f"{method}({fmt.format('/' + mode)})"), *compensated_operands(kind, 19))


@pytest.mark.parametrize("mode", MODES)
def test_rounded_products(mode):
    """Of the same mode; one saturates and one becomes infinite; then of another one."""
    for mul in (f"e4m3/{mode}", f"e5m10/sat/{mode}", f"float(p=3, emin=-4, emax=3)/ftz/{mode}", "e5m7"):
        for method in METHODS:
            for fmt in ("e4m3", "e4m3/sat", "e5m10", "fp32/ftz"):
                for kind in ("normal", "large", "small"):
                    assert_equals_reference(
                        GemmSpec.of(f"{method}({fmt}/{mode}, mul={mul})"), *compensated_operands(kind, 17)
                    )


@pytest.mark.parametrize("mode", MODES)
def test_wagers_that_are_lost_and_operands_that_are_none(mode):
    for text in (f"kahan(e5m10/{mode})", f"two_sum(bf16/{mode})", f"neumaier(e5m10/ftz/{mode})", f"kahan(e4m3/{mode})"):
        for kind in ("large", "huge"):
            assert_equals_reference(GemmSpec.of(text), *compensated_operands(kind, 70))
        a, b = compensated_operands("normal", 12)
        a[1, 3], a[2, 5], b[4, 7] = float("inf"), float("nan"), -float("inf")
        assert_equals_reference(GemmSpec.of(text), a, b)


@pytest.mark.parametrize("mode", ["", *(f"/{m}" for m in MODES)])
def test_operands_in_float64(mode):
    a, b = (x.double() * (1 + 2.0**-40) for x in compensated_operands("normal", 12))
    for fmt in ("e4m3", "e5m10", "e8m12", "fp32/ftz", "float(p=30, emin=-100, emax=100)"):
        for method in ("kahan", "two_sum"):
            assert_equals_reference(GemmSpec.of(f"{method}({fmt}{mode})"), a, b)
            assert_equals_reference(GemmSpec.of(f"{method}({fmt}{mode}, mul=e5m7{mode})"), a, b)


@pytest.mark.parametrize("mode", MODES)
def test_they_have_kernels_of_their_own(mode):
    for name in isas():
        if name == "baseline":
            continue
        cpu.set_isa(name)
        for text in (f"kahan(e5m10/{mode})", f"two_sum(e4m3/{mode})", f"neumaier(e5m10/ftz/{mode})"):
            run = str(cpu.gemm(*compensated_operands("normal", 19), GemmSpec.of(text), torch.empty(5, 18), 0))
            assert "directed" in run and "any mode" not in run and "scalar" not in run, (name, text, run)
