"""Block floating point as operands of specs: blocks along k, forward and backward, against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import reference
from gemmsim.ops import derive_seed

G = torch.Generator().manual_seed(0)
A, B = torch.randn(5, 37, generator=G), torch.randn(37, 4, generator=G)
A[0, 3], A[1, 5] = math.inf, math.nan

SPECS = [
    "bfp(8,16) : fp32",
    "bfp(4,8)/rtz * bfp(6,5,asymmetric) : e5m10",
    "bfp(8,tensor) * e4m3 : chunked(8, e5m10, fp32)",
    "* bfp(5,16) : exact(fp32)",
    "bfp(8,16)/sr8 * bfp(8,7)/sr8 : fp32 -> bf16",
]


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_the_references(text, dtype):
    spec = gs.GemmSpec.parse(text)
    assert gs.GemmSpec.parse(str(spec)) == spec == gs.GemmSpec.from_json(spec.to_json())
    assert "exponent for" in spec.explain()
    a, b = A.to(dtype), B.to(dtype)
    seed = derive_seed(3, 0) if spec.is_stochastic else 0
    want = torch.tensor(reference.gemm(a, b, spec, seed=seed), dtype=torch.float64).to(dtype)
    assert_bitwise_equal(gs.qmatmul(a, b, spec, seed=3), want, nan_is_nan=True)


def test_batches_and_gradients_round_along_the_contraction():
    a, b = torch.randn(3, 5, 32, generator=G, requires_grad=True), torch.randn(32, 6, generator=G, requires_grad=True)
    y = gs.qmatmul(a, b, "bfp(6,8) : fp32")
    whole = gs.quantize(a.detach(), "bfp(6,8)"), gs.quantize(b.detach(), "bfp(6,8,dim=0)")
    assert_bitwise_equal(y.detach(), gs.qmatmul(*whole, ":fp32"))
    g = torch.randn(3, 5, 6, generator=G)
    y.backward(g)
    gb = gs.qmatmul(gs.quantize(g, "bfp(6,8)"), gs.quantize(b.detach().T, "bfp(6,8,dim=0)"), ":fp32")
    assert_bitwise_equal(a.grad, gb)
    assert b.grad.shape == b.shape and bool(b.grad.isfinite().all())


def test_linear_layers_and_quantisers():
    x, w = torch.randn(4, 16, generator=G), torch.randn(3, 16, generator=G)
    want = gs.qmatmul(x, w.T, "bfp(8,4) : e5m10")
    assert_bitwise_equal(gs.qlinear(x, w, None, "bfp(8,4) : e5m10"), want)
    formats = gs.QAffineFormats(input_quant="bfp(8,4)", weight_quant="bfp(8,4)", fprop=":e5m10")
    assert_bitwise_equal(gs.qlinear(x, w, None, formats), want)


@pytest.mark.parametrize(
    "text",
    [
        "bfp(8,index=1) : fp32",
        "bfp(8,16,dim=0) : fp32",
        ":bfp(8,16)",
        ": fp32 -> bfp(8,16)",
        "bfp(8,16) : scaled(fp32, fp32)",
        "bfp(8,16) : hw(hopper, wgmma, e4m3)",
        ":chunked(4, bfp(8,16), fp32)",
    ],
)
def test_what_it_is_not_for_is_refused(text):
    with pytest.raises(gs.SpecError):
        gs.GemmSpec.parse(text)
