"""Exact sums by slices (cutlass_kernels/cpu/product/sliced.h): operands of one to four slices, runs longer than double lanes hold."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

ROWS, COLUMNS = 3, 5


def operands(spread: int, terms: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of 24 bits whose exponents are ``spread`` apart, and in every run one that takes the largest away again."""
    g = torch.Generator().manual_seed(spread + terms)
    a, b = torch.randn(ROWS, terms, generator=g), torch.randn(terms, COLUMNS, generator=g)
    a *= 2.0 ** -torch.randint(0, spread + 1, a.shape, generator=g)
    b *= 2.0 ** -torch.randint(0, spread + 1, b.shape, generator=g)
    if terms > 1:
        a[:, -1], b[-1] = -a[:, 0], b[0]
    return a, b


def check(a: torch.Tensor, b: torch.Tensor, spec: str, expect: str | None) -> None:
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(spec), seed=7), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
        how = str(cpu.gemm(a, b, GemmSpec.of(spec), out, 7))
        assert expect is None or expect in how, how
        assert_bitwise_equal(out, want, context=f"{spec} on {name}: {how}")


@pytest.mark.parametrize(
    "spec", [":exact(fp64)", ":exact(e5m10)", ":exact(bf16/rtz)", ":exact(e8m10/sr8)", ":chunked(7, exact(e8m15))"]
)
@pytest.mark.parametrize(("spread", "terms"), [(0, 40), (15, 90), (30, 33), (30, 1)])
def test_sums_of_any_range(spec, spread, terms):
    check(*operands(spread, terms), spec, "sliced" if spread and terms > 1 else None)


@pytest.mark.parametrize("spread", [0, 20])
def test_runs_longer_than_double_lanes_hold(spread):
    check(*operands(spread, 2100), ":exact(fp64)", None)


def test_a_range_that_128_bits_do_not_hold_and_what_is_not_finite_go_element_by_element():
    a, b = operands(110, 60)
    check(a, b, ":exact(fp64)", "long register")
    a, b = operands(20, 60)
    a[0, 3], b[5, 1] = float("inf"), float("nan")
    check(a, b, ":exact(bf16)", "long register")
