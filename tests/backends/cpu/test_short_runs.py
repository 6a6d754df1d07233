"""Runs of few terms of any operands, whose products are rounded once and whose steps are made to odd some runs at a time.

Midpoints, small sums, overflows, exact zeros and products next to a power of two must be frequent: nothing watches for them.
"""

from __future__ import annotations

import pytest
import torch
from support.cpu import assert_equals_reference, frequent_operands, isas

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

FORMATS = [
    "e4m3",
    "e4m3/sat",
    "e3m4",
    "e5m2",
    "e5m10",
    "e5m10/ftz",
    "bf16",
    "int8",
    "e8m12",
    "fp32/ftz",
    "e4m3/ftz/sat",
]
#: Runs of one, of few, of as many as have kernels of their own and one more, in sequence, in pairs, in lanes; an odd last one.
ORDERS = [
    *(f"pairwise({{}}, {n})" for n in (1, 2, 3, 6, 7, 12, 13)),
    *(f"chunked({n}, {{}})" for n in (1, 4, 5)),
    "interleaved(20, {})",
    "interleaved(83, {}, combine=pairwise)",
    "interleaved(9, {}, combine=pairwise)",
    "chunked(24, {})",
]


def operands(kind: str, k: int = 83) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = frequent_operands(kind, k)
    if kind == "powers":  # products just below and above powers of two, by less than a float's last place
        ends = torch.tensor([1 + 2.0**-23, 1 - 2.0**-24, 1 - 2.0**-23, 1 + 2.0**-22])
        a = ends[torch.randint(4, a.shape)] * torch.exp2(torch.randint(-9, 3, a.shape).float()) * a.sign()
        b = ends[torch.randint(4, b.shape)] * b.sign()
    elif kind == "none":
        a[1, 3], a[2, 5], b[4, 7] = float("inf"), float("nan"), -float("inf")
    return a, b


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_short_runs(order, fmt):
    torch.manual_seed(len(order))
    for kind in ("normal", "ties", "small", "large", "zeros", "powers", "none"):
        assert_equals_reference(GemmSpec.of(":" + order.format(fmt)), *operands(kind))


@pytest.mark.parametrize("exponents", [(-130, 20), (-75, -75), (60, 60), (100, 27), (-149, 149)])
@pytest.mark.parametrize("fmt", ["bf16", "e8m10", "bf16/ftz", "fp32/ftz", "float(p=9, emin=-120, emax=110)"])
def test_products_at_the_ends_of_binary32(fmt, exponents):
    a, b = operands("normal", 20)
    a, b = a * torch.exp2(torch.tensor(float(exponents[0]))), b * torch.exp2(torch.tensor(float(exponents[1])))
    for order in ("pairwise({}, 1)", "pairwise({}, 3)", "chunked(2, {})"):
        assert_equals_reference(GemmSpec.of(":" + order.format(fmt)), a, b)


@pytest.mark.parametrize("fmt", ["e5m10", "e4m3", "fp32/ftz", "e8m12", "fp32"])
def test_operands_in_float64_have_kernels_too(fmt):
    a, b = (x.double() * (1 + 2.0**-40) for x in operands("normal", 30))
    for order in ("pairwise({}, 1)", "pairwise({}, 4)", "chunked(25, {})"):
        spec = GemmSpec.of(":" + order.format(fmt))
        assert_equals_reference(spec, a, b)
        for name in isas():
            if name != "baseline":
                cpu.set_isa(name)
                run = str(cpu.gemm(a, b, spec, torch.empty(9, 17, dtype=torch.float64), 0))
                assert "scalar" not in run, (name, order, run)


def test_they_go_in_float_lanes():
    for name in isas():
        if name != "baseline":
            cpu.set_isa(name)
            run = cpu.gemm(*operands("normal"), GemmSpec.of("pairwise(e4m3)"), torch.empty(9, 17), 0)
            assert "float32 lanes" in str(run), (name, str(run))
