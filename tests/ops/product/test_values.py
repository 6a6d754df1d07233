"""What ``qmatmul`` computes is what the exact reference computes, for every way of saying it."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference

SPECS = [
    "e4m3 : e5m10",
    "e5m2 * e4m3 : mul=e5m7, add=e6m9/rtz -> bf16",
    ":e5m2",
    "e4m3 : e5m3/sr8",
    "e4m3/sr4 * e5m2/sr8 : mul=e5m3/sr8, add=e5m4/sr16 -> e5m2/sr8",
    "fixed(8,4) : fixed(16,8)",
    ":sequential(e5m3/sr8, seed=11)",
    "e4m3 : e5m10, arithmetic=fp32",
]


def by_reference(a, b, spec, seed=0):
    return torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec, seed), dtype=torch.float64).to(torch.float32)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
def test_the_reference_agrees(spec, grad):
    torch.manual_seed(0)
    a, b = torch.randn(4, 9), torch.randn(9, 5)
    want = by_reference(a, b, spec, seed=5)
    assert_bitwise_equal(gs.qmatmul(a.requires_grad_(grad), b, spec, seed=5).detach(), want)


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
def test_a_batch_has_the_bits_of_its_definition(grad):
    """Rows count through the batch; an operand's elements count in the operand as passed, not as broadcast."""
    torch.manual_seed(0)
    spec = gs.GemmSpec.of("e4m3/sr4 * e5m2/sr8 : mul=e5m3/sr8, add=e5m4/sr16 -> e5m2/sr8")
    a, b = torch.randn(2, 1, 4, 6), torch.randn(3, 6, 5)
    got = gs.qmatmul(a.requires_grad_(grad), b, spec, seed=9).detach()
    for i in range(2):
        for j in range(3):
            rows = reference.gemm(
                a[i, 0].tolist(), b[j].tolist(), spec, 9, row0=(3 * i + j) * 4, a_start=i * 24, b_start=j * 30
            )
            assert_bitwise_equal(got[i, j], torch.tensor(rows), context=f"batch {i},{j}")


@pytest.mark.parametrize("spec", SPECS)
def test_flattening_the_batch_changes_nothing(spec):
    torch.manual_seed(0)
    a, b = torch.randn(3, 4, 9), torch.randn(9, 5)
    flat = gs.qmatmul(a.reshape(-1, 9), b, spec, seed=3)
    assert_bitwise_equal(gs.qmatmul(a, b, spec, seed=3).reshape(-1, 5), flat)
    apart = a.movedim(0, -1).contiguous().movedim(-1, 0)  # not to be flattened without a copy
    assert_bitwise_equal(gs.qmatmul(apart, b, spec, seed=3).reshape(-1, 5), flat)
    assert_bitwise_equal(gs.qlinear(a, b.mT, None, spec, seed=3).reshape(-1, 5), flat)


def test_all_ways_of_giving_a_spec_mean_the_same():
    torch.manual_seed(0)
    a, b = torch.randn(4, 9), torch.randn(9, 5)
    want = gs.qmatmul(a, b, ":e5m3")
    spec = gs.GemmSpec.of(":e5m3")
    for same in (
        spec,
        spec.accumulator,
        gs.acc.sequential("e5m3"),
        gs.formats.parse_cast("e5m3"),
        gs.formats.parse("e5m3"),
        "e5m3",
        gs.QAffineFormats("e5m3"),
        gs.QAffineFormats(fprop=spec),
    ):
        assert_bitwise_equal(gs.qmatmul(a, b, same), want, context=repr(same))


def test_no_spec_is_pytorchs_own_product():
    torch.manual_seed(0)
    a, b, bias = torch.randn(4, 9), torch.randn(9, 5), torch.randn(5)
    assert_bitwise_equal(gs.qmatmul(a, b), a @ b)
    assert_bitwise_equal(gs.qlinear(a, b.mT, bias), torch.nn.functional.linear(a, b.mT, bias))
    assert gs.qmatmul(a.bfloat16(), b).dtype == torch.float32


def test_arithmetic_is_also_a_keyword():
    # 1 * (1 + 2^-11 + 2^-23) - like sums round twice through binary32.
    torch.manual_seed(0)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    exact, double = gs.qmatmul(a, b, ":e5m10"), gs.qmatmul(a, b, ":e5m10, arithmetic=fp32")
    assert not torch.equal(exact, double)
    for spec in (":e5m10", gs.GemmSpec.of(":e5m10"), gs.QAffineFormats("e5m10")):
        assert_bitwise_equal(gs.qmatmul(a, b, spec, arithmetic="fp32"), double)
        assert_bitwise_equal(gs.qlinear(a, b.mT, None, spec, arithmetic="fp32"), double)
    assert_bitwise_equal(gs.qmatmul(a, b, ":e5m10, arithmetic=fp32", arithmetic="exact"), exact)
    with pytest.raises(gs.SpecError, match="arithmetic='fp64'"):
        gs.qmatmul(a, b, ":e5m10", arithmetic="fp64")


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "with grad"])
def test_special_values(grad):
    inf, nan = math.inf, math.nan
    table = [
        ([1.0, nan], [1.0, 1.0], nan),
        ([inf, 1.0], [0.0, 1.0], nan),
        ([inf, inf], [1.0, -1.0], nan),
        ([inf, 1.0], [-1.0, 1.0], -inf),
        ([300.0, 300.0], [300.0, 300.0], inf),  # beyond 65504
        ([-0.0, -0.0], [1.0, 1.0], 0.0),  # the register starts at +0
        ([1.0, -1.0], [1.0, 1.0], 0.0),
        ([2.0**-20, 0.0], [2.0**-6, 0.0], 0.0),  # below half the smallest subnormal
    ]
    for left, right, want in table:
        a = torch.tensor(left).requires_grad_(grad)
        got = gs.qmatmul(a, torch.tensor(right), ":e5m10").detach()
        assert_bitwise_equal(got, torch.tensor(want), nan_is_nan=True, context=f"{left} {right}")
    assert gs.qmatmul(torch.tensor([300.0, 300.0]), torch.tensor([300.0, 300.0]), ":e5m10/sat").item() == 65504


def test_no_terms_give_plus_zero_then_the_output_cast():
    assert_bitwise_equal(gs.qmatmul(torch.empty(2, 0), torch.empty(0, 3), ":e5m10"), torch.zeros(2, 3))
    assert_bitwise_equal(
        gs.qmatmul(torch.empty(2, 0), torch.empty(0, 3), ":e5m10 -> e8m0"), torch.full((2, 3), 2.0**-127)
    )


def test_operand_results_are_kept_where_the_dtype_does_not_hold_the_format():
    """bf16 operands in e5m10 and e4m3 ones in bf16: the values multiplied are the cast ones, not rounded again."""
    a = torch.tensor([[1e6, 3.0]], dtype=torch.bfloat16)
    b = torch.tensor([[1.0], [1.0]], dtype=torch.bfloat16)
    for grad in (False, True):
        got = gs.qmatmul(a.clone().requires_grad_(grad), b, "e5m10/sat : fp32", out_dtype=torch.float32)
        assert got.item() == 65507.0
        formats = gs.QAffineFormats(fprop=":fp32", input_quant="e5m10/sat")
        assert gs.qmatmul(a.clone().requires_grad_(grad), b, formats, out_dtype=torch.float32).item() == 65507.0
