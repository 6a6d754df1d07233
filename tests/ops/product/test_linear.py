"""``qlinear``: any rank, the bias, the dtypes."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs


def ints(*shape, dtype=torch.float32):
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 4, 5), (2, 3, 4, 5), (0, 5), (2, 0, 5), (1, 1, 5)], ids=str)
def test_shapes_and_gradients_are_those_of_torch(shape, bias):
    x, w, b = ints(*shape).requires_grad_(), ints(6, 5).requires_grad_(), ints(6).requires_grad_()
    b = b if bias else None
    want = torch.nn.functional.linear(x, w, b)
    leaves = [x, w, b] if bias else [x, w]
    wanted = torch.autograd.grad(want.pow(2).sum(), leaves)
    got = gs.qlinear(x, w, b, ":fp64")
    assert_bitwise_equal(got.detach() + 0.0, want.detach() + 0.0)
    for mine, other in zip(torch.autograd.grad(got.pow(2).sum(), leaves), wanted, strict=True):
        assert_bitwise_equal(mine + 0.0, other + 0.0)
    assert_bitwise_equal(gs.qlinear(x.detach(), w, b, ":fp64").detach() + 0.0, want.detach() + 0.0)


@pytest.mark.parametrize("features", [(0, 6), (5, 0)], ids=str)
def test_layers_without_inputs_or_outputs(features):
    k, n = features
    y = gs.qlinear(torch.ones(4, k), torch.ones(n, k), torch.ones(n), ":e5m10")
    assert_bitwise_equal(y, torch.ones(4, n))


def test_the_bias_is_added_in_float32_after_the_product():
    # 2048 in the e5m10 accumulator, 1 from the bias: 2049 is no e5m10 number but a float32 one.
    x, w, bias = torch.tensor([[2048.0]]), torch.tensor([[1.0]]), torch.tensor([1.0])
    assert gs.qlinear(x, w, bias, ":e5m10").item() == 2049
    assert gs.qlinear(x.half(), w.half(), bias.half(), ":e5m10").item() == 2048
    assert gs.qlinear(x.half(), w.half(), bias, ":e5m10", out_dtype=torch.float32).item() == 2049
    tiny = torch.tensor([2.0**-30], dtype=torch.float64)
    assert gs.qlinear(x.double(), w.double(), tiny, ":e5m10").item() == 2048 + 2.0**-30


def test_a_half_result_is_rounded_once_after_the_bias():
    # 1 + 2^-11 is a tie in half precision; the bias decides it before the one rounding.
    x, w = torch.tensor([[1.0 + 2.0**-11]], dtype=torch.float32), torch.tensor([[1.0]])
    bias = torch.tensor([2.0**-20])
    assert gs.qlinear(x, w, bias, ":fp32", out_dtype=torch.float16).item() == 1 + 2.0**-10


def test_module_parameters_keep_their_state():
    layer = torch.nn.Linear(5, 6)
    before = {name: t.clone() for name, t in layer.state_dict().items()}
    gs.qlinear(torch.randn(4, 5), layer.weight, layer.bias, "e4m3 : e5m10").sum().backward()
    assert list(layer.state_dict()) == ["weight", "bias"]
    for name, t in layer.state_dict().items():
        assert_bitwise_equal(t, before[name])
    assert layer.weight.grad.is_contiguous()


def test_bias_in_the_accumulator():
    x, w, bias = ints(4, 5), ints(6, 5), ints(6)
    formats = gs.QAffineFormats(fprop=":fp32", bias_in_accumulator=True)
    assert_bitwise_equal(gs.qlinear(x, w, None, formats) + 0.0, x @ w.mT + 0.0)
    assert_bitwise_equal(gs.qlinear(x, w, bias, formats) + 0.0, x @ w.mT + bias + 0.0)
