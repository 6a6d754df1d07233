"""Sums with checks (cutlass_kernels/cpu/tiles: speculative.h, stochastic.h), on data that make every exception the rule.

Sums on midpoints, exact and not; below the smallest normal number; zero; and registers that become -0. Stochastic sums whose
random bits reach below the carrier's last place.
"""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

from gemmsim import reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

ROWS, TERMS, COLUMNS = 11, 90, 17  # more rows than a tile has


def operands(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(len(kind))
    a = torch.randn(ROWS, TERMS, generator=g)
    b = torch.randn(TERMS, COLUMNS, generator=g)
    if kind == "midpoints":  # 1 + (2^-11 and a little more or less, or exactly that)
        a[:, 0], b[0] = 1.0, 1.0
        a[:, 1:], b[1:] = 2.0**-11, 1 + torch.randint(-1, 2, (TERMS - 1, COLUMNS), generator=g) * 2.0**-23
        a[:, 1::2] *= -1
    elif kind == "exact ties":
        a, b = (a * 4).round() / 4, (b * 64).round() / 64
    elif kind == "subnormal sums":
        a *= 2.0**-9
        b *= 2.0**-11
    elif kind == "zeros":
        a *= torch.rand(a.shape, generator=g) < 0.1
        a[1] = 0
    elif kind == "negative zeros":  # products just below half of the smallest number
        a[:, :40], b[:40] = -(2.0**-13), 2.0**-13
    return a, b


@pytest.mark.parametrize("spec", [":e5m10", ":bf16", ":e5m10, arithmetic=fp32", ":mul=e5m10, add=e5m10", ":mul=e5m7, add=e4m3",
                                  ":e5m10/rtz", ":e5m10/rna", ":e5m10/rd", ":e5m10/ru", ":e5m10/sr8", ":chunked(40, e5m10)",
                                  ":e5m10/sr16", ":e5m10/sr20", ":e8m14/sr12", ":e8m10/sr18/ftz", ":kahan(e5m10)",
                                  ":e5m17, arithmetic=fp32", ":mul=e5m10, add=e5m10, arithmetic=fp32",
                                  ":mul=bf16, add=e5m10", ":mul=e6m9, add=e5m10"])  # fmt: skip
@pytest.mark.parametrize("kind", ["midpoints", "exact ties", "subnormal sums", "zeros", "negative zeros"])
def test_what_is_an_exception_elsewhere(kind, spec):
    a, b = operands(kind)
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(spec), seed=3), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(ROWS, COLUMNS, dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(spec), out, 3)
        assert_bitwise_equal(out, want, context=f"{spec}, {kind}, {name}")


def product_midpoints(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Products that the machine's own rounding puts on a midpoint of e5m10 from above and from below, subnormals too."""
    x = 1 + torch.rand(TERMS, 1, generator=g, dtype=torch.float64).float().double()
    places = torch.randint(1024, 2048, (TERMS, COLUMNS), generator=g).double() + 0.5
    places[:, ::5] = torch.randint(0, 1024, places[:, ::5].shape, generator=g).double() + 0.5
    exponents = torch.where(places > 1024, torch.randint(-24, -6, places.shape, generator=g), -24)
    b = (places * torch.exp2(exponents.double()) / x).float()
    signs = torch.randint(0, 2, (ROWS, 1), generator=g) * 2 - 1.0
    return signs * x.float().T, b


@pytest.mark.parametrize("spec", [":mul=e5m10, add=e5m10", ":mul=e5m10, add=e5m10, arithmetic=fp32", ":mul=e5m10, add=fp32",
                                  ":mul=e5m10, add=bf16", ":mul=e5m10/sat, add=e5m10/sat", ":mul=e5m10/ftz, add=e5m10/ftz",
                                  ":mul=e5m10, add=e5m12", ":mul=e6m9, add=e5m10"])  # fmt: skip
def test_products_beside_midpoints(spec):
    a, b = product_midpoints(torch.Generator().manual_seed(5))
    exact = a[:1].T.double() * b.double()
    nearest = (a[:1].T * b).double()
    on = (nearest / torch.exp2(torch.frexp(nearest)[1].clamp(min=-13).double() - 11)).frac().abs() == 0.5
    assert (on & (nearest.abs() > exact.abs())).sum() > 100 and (on & (nearest.abs() < exact.abs())).sum() > 100
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(spec)), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(ROWS, COLUMNS, dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(spec), out, 0)
        assert_bitwise_equal(out, want, context=f"{spec}, {name}")


@pytest.mark.parametrize("more", ["", ", arithmetic=fp32"])
def test_an_addend_below_the_smallest_number(more):
    """The register starts off the format's grid, where sums are not looked at otherwise."""
    spec, g = GemmSpec.of(f":sequential(e5m10, mul=e5m10, init=c_first){more}"), torch.Generator().manual_seed(6)
    a, b = torch.randn(ROWS, TERMS, generator=g), torch.randn(TERMS, COLUMNS, generator=g)
    a[:, 0], b[0] = 2.0**-14, 1.0
    c = -(2.0**-15 + 2.0**-25 * torch.randint(0, 8, (ROWS, COLUMNS), generator=g))
    for k in (1, TERMS):
        want = torch.tensor(reference.gemm(a[:, :k].tolist(), b[:k].tolist(), spec, c=c.tolist()), dtype=torch.float64)
        for name in isas():
            cpu.set_isa(name)
            out = torch.empty(ROWS, COLUMNS, dtype=torch.float64)
            cpu.gemm(a[:, :k], b[:k], spec, out, 0, c)
            assert_bitwise_equal(out, want, context=f"{more}, {k}, {name}")


@pytest.mark.parametrize("spec", [":e8m14/sr12", ":e4m9/sr20/sat", ":e4m9/sr20"])
@pytest.mark.parametrize("kind", ["overflow", "not finite", "tiny"])
def test_random_bits_that_lanes_hold_in_part(kind, spec):
    """Where such a register is clamped, and where the data are none that float lanes take (all in double lanes then)."""
    a, b = operands("overflow")
    if kind == "overflow":
        a, b = a * 16, b * 2
    elif kind == "not finite":
        a[1, 3], a[2, 5], b[7, 2] = float("inf"), float("nan"), float("-inf")
    else:
        a, b = a * 2.0**-70, b * 2.0**-75
    want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(spec), seed=3), dtype=torch.float64)
    for name in isas():
        cpu.set_isa(name)
        out = torch.empty(ROWS, COLUMNS, dtype=torch.float64)
        cpu.gemm(a, b, GemmSpec.of(spec), out, 3)
        assert_bitwise_equal(out, want, context=f"{spec}, {kind}, {name}")


@pytest.mark.parametrize(
    "cast", ["e5m10fnuz", "e5m10fnuz/sr16", "e5m10/sr16", "e5m10fnuz/sr8", "e5m10/rd", "e4m9/sr20", "bf16"]
)
def test_a_register_that_starts_from_negative_zero_stays_it_only_where_the_format_has_one(cast):
    a, b = operands("zeros")
    spec = GemmSpec.of(f":sequential({cast}, init=c_first)")
    addend = torch.where(torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1)) < 0.5, -0.0, 0.7)
    for terms in (0, 3, TERMS):
        x, y = a[:, :terms].contiguous(), -b[:terms].abs()
        want = reference.gemm(x.tolist(), y.tolist(), spec, 3, addend.tolist()) if terms else None
        for name in isas():
            cpu.set_isa(name)
            out = torch.empty(ROWS, COLUMNS, dtype=torch.float64)
            cpu.gemm(x, y, spec, out, 3, addend)
            expected = addend.double() if want is None else torch.tensor(want, dtype=torch.float64)
            assert_bitwise_equal(out, expected, context=f"{cast}, {terms} terms, {name}")
