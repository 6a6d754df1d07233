"""``bias`` and ``output`` of the product operators: what follows a product, as passes over its result."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.ops.product.operators import matmul_op, matmul_with_operands_op

G = torch.Generator().manual_seed(1)
A, B, BIAS = torch.randn(5, 9, generator=G), torch.randn(9, 4, generator=G), torch.randn(4, generator=G)
SPEC = "e4m3 : e5m10"


@pytest.mark.parametrize("op", [matmul_op, matmul_with_operands_op], ids=["matmul", "matmul_with_operands"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_result_is_that_of_the_steps(op, dtype):
    found = op(A, B, SPEC, None, dtype, None, 0, None, BIAS, "e5m2/rtz")
    out = found if op is matmul_op else found[0]
    raw = gs.qmatmul(A, B, SPEC, out_dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    assert_bitwise_equal(out, gs.quantize(raw + BIAS.to(raw.dtype), "e5m2/rtz").to(dtype))
    found = op(A, B, SPEC, output="e5m2")
    out = found if op is matmul_op else found[0]
    assert_bitwise_equal(out, gs.quantize(gs.qmatmul(A, B, SPEC), "e5m2"))


@pytest.mark.parametrize("op", [matmul_op, matmul_with_operands_op], ids=["matmul", "matmul_with_operands"])
def test_opcheck(op):
    torch.library.opcheck(op, (A, B, SPEC), {"bias": BIAS, "output": "e4m3"})
    torch.library.opcheck(op, (A, B, ":bf16/sr8", 3, torch.bfloat16), {"bias": BIAS})


def test_examples_of_vmap_are_calls_of_their_own():
    a, bias = torch.randn(3, 2, 5, 9, generator=G), torch.randn(4, 3, generator=G)

    def call(x, y):
        return matmul_op(x, B, SPEC, None, torch.bfloat16, None, 0, None, y, "e5m2")

    got = torch.vmap(call, (0, 1))(a, bias)
    want = torch.stack([call(a[i], bias[:, i]) for i in range(3)])
    assert_bitwise_equal(got, want)
    got, first, second = torch.vmap(lambda x: matmul_with_operands_op(x, B, SPEC, bias=BIAS))(a)
    want = [matmul_with_operands_op(x, B, SPEC, bias=BIAS) for x in a]
    assert_bitwise_equal(got, torch.stack([w[0] for w in want]))
    assert_bitwise_equal(first, torch.stack([w[1] for w in want]))


@pytest.mark.parametrize("bias", [torch.zeros(5), torch.zeros(1, 4)])
def test_a_bias_of_another_shape(bias):
    with pytest.raises(gs.ShapeError, match=r"allowed: a bias \(4,\)"):
        matmul_op(A, B, SPEC, bias=bias)


def test_a_layer_compiled_whole():
    formats = gs.QAffineFormats(fprop=SPEC, output_quant="e5m2", bias_quant="bf16")
    layer = torch.compile(lambda x, y, z: gs.qlinear(x, y.mT, z, formats), fullgraph=True, backend="aot_eager")
    x, y, z = (t.clone().requires_grad_() for t in (A, B, BIAS))
    out = layer(x, y, z)
    out.sum().backward()
    x2, y2, z2 = (t.clone().requires_grad_() for t in (A, B, BIAS))
    want = gs.qlinear(x2, y2.mT, z2, formats)
    want.sum().backward()
    assert_bitwise_equal(out.detach(), want.detach())
    for got, expected in ((x, x2), (y, y2), (z, z2)):
        assert_bitwise_equal(got.grad, expected.grad)
