"""Kernels of rounding in one direction, at random and to odd equal the reference bit for bit on every instruction set.

Compensated sums that stay in the format, that leave it between two looks, and whose data are not finite; steps to odd; totals that
meet in one direction; registers by exponent that spill.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

ROWS, TERMS, COLUMNS = 3, 83, 19
KINDS = ["normal", "subnormal", "overflow", "special"]


def operands(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(KINDS.index(kind))
    a, b = torch.randn(ROWS, TERMS, generator=g), torch.randn(TERMS, COLUMNS, generator=g)
    if kind == "subnormal":
        a, b = a * 2.0**-9, b * 2.0**-10
        a[1] = 0
    elif kind == "overflow":  # of e5m10, in some elements, with what is below its range beside it
        a, b = a * 2.0**7, b * 2.0**6
        b[:, ::3] *= 2.0**-30
    elif kind == "special":
        a[0, 3], a[2, 7], b[9, 4], b[50, 1] = float("inf"), float("nan"), -float("inf"), -0.0
    return a, b


def check(text: str, a: torch.Tensor, b: torch.Tensor) -> dict[str, cpu.Kernels]:
    """Which kernels ran, by instruction set."""
    spec = GemmSpec.of(text)
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec, seed=3), dtype=torch.float64)
    ran = {}
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(want.shape, dtype=torch.float64)
        ran[name] = cpu.gemm(a, b, spec, out, 3).how
        assert_bitwise_equal(out, want, context=f"{spec} on {name}: {ran[name]}")
    return ran


@pytest.mark.parametrize("cast", ["e5m10/rtz", "e5m10/ru", "e5m10/rd", "e5m10/sr8", "e5m10/sr16", "fp32/rtz"])
@pytest.mark.parametrize("method", ["kahan", "neumaier", "two_sum", "fast_two_sum"])
def test_compensated_sums(method, cast):
    ran = check(f":{method}({cast})", *operands("normal"))
    assert all("directed" in str(how) for name, how in ran.items() if name != "baseline")


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize(
    "text",
    [":kahan(e5m10/rd)", ":two_sum(e5m10/sr8)", ":neumaier(e5m10/rtz, mul=e5m7/rtz)", ":fast_two_sum(e5m10/sr8, mul=e5m10/sr12)",
     ":kahan(e5m10/sr8, mul=e5m7)", ":kahan(e5m10/ru/sat)", ":kahan(e4m3/sr20)", ":interleaved(3, neumaier(e5m10/sr8))",
     ":kahan(e5m10/sr8), arithmetic=fp32"],
)  # fmt: skip
def test_compensated_sums_of_other_data(text, kind):
    check(text, *operands(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", [":e5m10/ro", ":mul=e5m7/ro, add=e5m10/ro", ":e4m3/ro/sat", "e4m3 : e8m7/ro/ftz", ":fp32/ro"]
)
def test_steps_to_odd(text, kind):
    check(text, *operands(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [":chunked(8, e5m10/rtz)", ":chunked(3, e5m10/rd)", ":chunked(5, e5m10/ru/sat)", ":pairwise(e5m10/rtz)", ":pairwise(e5m10/rd, 2)",
     ":pairwise(e5m10/ru, 5)", ":interleaved(7, e5m10/rd, combine=pairwise)", ":pairwise(e5m10/ro, 3)", ":pairwise(bf16/rna, 1)",
     ":chunked(4, sequential(e5m10/rtz, mul=e5m10/rtz))", ":chunked(4, e5m10/rd, e5m7/ru)", ":pairwise(fp32/rtz, 1)",
     "e4m3 : pairwise(e5m10/rtz, 1)", ":splitk(3, e5m10/rd, e5m10/rd)"],
)  # fmt: skip
def test_totals_that_meet_in_one_direction(text, kind):
    check(text, *operands(kind))


@pytest.mark.parametrize("carry", [1, 2, 5])
@pytest.mark.parametrize("out", ["fp32", "e5m10/rtz", "e4m3/sr8"])
def test_registers_by_exponent(out, carry):
    a, b = operands("normal")
    a[2], b[:, 2] = -1.0, 1.0  # reach the lower end of a register, which is inside
    ran = check(f":binned({out}, carry={carry})", a, b)
    assert all("binned in float64" in str(how) for how in ran.values())
