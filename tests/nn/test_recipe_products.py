"""One linear layer under each recipe: forward and backward products are those of the slow reference, bit for bit."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.ops.seeds import Stream, derive_seed
from gemmsim.reference import gemm

RECIPES = [name for name in gs.recipes.__all__ if name not in ("all_products", "rules", "svg", "hopper_fp8_delayed")]
SCALED = ("hopper_fp8", "deepseek_fp8", "fp16_accumulate")  # a power of two for each tensor, outside the products


def product(a, b, spec, stream):
    seed = derive_seed(7, stream) if spec.is_stochastic else 0
    return torch.tensor(gemm(a.tolist(), b.tolist(), spec, seed), dtype=torch.float64).float()


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in SCALED])
def test_forward_and_backward_products(name):
    formats = gs.QAffineFormats.of(name)
    generator = torch.Generator().manual_seed(3)
    x, w, g = (torch.randn(*shape, generator=generator) for shape in ((20, 70), (5, 70), (20, 5)))
    x[:, 3] *= 40  # a column of outliers
    x[4] = 0
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    out = gs.qlinear(a, b, None, formats, seed=7)
    out.backward(g)
    kept = [
        t if cast is None else gs.quantize(t, cast)
        for t, cast in ((x, formats.fprop.cast_a), (w, formats.fprop.cast_b))
    ]
    wanted = {  # a cast alone is one of the tensor; scaled operands are quantised for each product
        "output": (out.detach(), product(x, w.T, formats.fprop, 0)),
        "gradient of the input": (a.grad, product(g, kept[1], formats.dgrad, Stream.DGRAD)),
        "gradient of the weight": (b.grad, product(g.T, kept[0], formats.wgrad, Stream.WGRAD)),
    }
    for what, (found, want) in wanted.items():
        assert_bitwise_equal(found, want, context=f"{name}: {what}")
