"""mptorch's convolutions as its documentation defines them: unfold, a product of matrices, fold (col2im)."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from torch.nn import functional

from gemmsim.compat.mptorch import FloatingPoint
from gemmsim.compat.mptorch import quant as qpt

MAC = FloatingPoint(exp=5, man=4, subnormals=True, saturate=False)
#: kernel, stride, padding, dilation.
WHERE = [(3, 1, 1, 1), (3, 2, 1, 1), (2, 2, 0, 1), (3, 2, 2, 2), ((3, 2), (1, 3), (1, 0), (2, 1)), (4, 4, 0, 1)]


def product(a, b):
    """The product of mptorch's raw function in the layer's format."""
    return qpt.float_bmm(a, b, man_add=4, exp_add=5, man_mul=4, exp_mul=5, saturate=False)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("accumulate", ["sequential", "chunk(8)"])
@pytest.mark.parametrize("where", WHERE, ids=str)
def test_a_convolution_and_its_gradients(where, accumulate):
    kernel, stride, padding, dilation = where
    formats = qpt.QAffineFormats(fwd_mac=MAC, bwd_mac=MAC, accumulate=accumulate)
    layer = qpt.QConv2d(3, 16, kernel, formats, stride=stride, padding=padding, dilation=dilation, bias=False)
    x = numbers(2, 3, 13, 12).requires_grad_()
    y = layer(x)
    g = numbers(*y.shape, seed=1)
    y.backward(g)
    how = {"padding": padding, "stride": stride, "dilation": dilation}
    size = layer.kernel_size
    weight = layer.weight.detach()

    def matmul(a, b):
        return qpt.float_bmm(a, b, 4, 5, 4, 5, saturate=False, accumulate=accumulate)

    columns = functional.unfold(x.detach(), size, **how)
    assert_bitwise_equal(y.detach(), matmul(columns.mT, weight.flatten(1).T).mT.reshape(y.shape))
    rows = matmul(g.flatten(2).mT, weight.flatten(1)).mT  # K is the number of filters
    assert_bitwise_equal(x.grad, functional.fold(rows, x.shape[2:], size, **how))
    terms = g.flatten(2).transpose(0, 1).flatten(1)
    windows = columns.transpose(0, 1).flatten(1)
    assert_bitwise_equal(layer.weight.grad.flatten(1), matmul(windows, terms.T).T)


@pytest.mark.parametrize("where", WHERE, ids=str)
def test_a_transposed_convolution_and_its_gradients(where):
    kernel, stride, padding, dilation = where
    formats = qpt.QAffineFormats(fwd_mac=MAC, bwd_mac=MAC)
    layer = qpt.QConvTranspose2d(6, 4, kernel, formats, stride=stride, padding=padding, dilation=dilation, bias=False)
    x = numbers(2, 6, 5, 6).requires_grad_()
    y = layer(x)
    g = numbers(*y.shape, seed=1)
    y.backward(g)
    how = {"padding": padding, "stride": stride, "dilation": dilation}
    size, weight = layer.kernel_size, layer.weight.detach()
    rows = product(x.detach().flatten(2).mT, weight.flatten(1)).mT
    assert_bitwise_equal(y.detach(), functional.fold(rows, y.shape[2:], size, **how))
    columns = functional.unfold(g, size, **how)
    assert_bitwise_equal(x.grad, product(columns.mT, weight.flatten(1).T).mT.reshape(x.shape))


def test_an_infinite_weight_is_no_nan_in_the_gradient():
    """PyTorch has infinities where the weight is infinite; zeros between elements would multiply it."""
    layer = qpt.QConv1d(1, 1, 2, qpt.QAffineFormats(fwd_mac=MAC, bwd_mac=MAC), stride=2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[float("inf"), 1.0]]]))
    x = torch.ones(1, 1, 6, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [[[float("inf"), 1.0] * 3]]
