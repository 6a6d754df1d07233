"""Convolutions with operands in block formats: the product of a matrix of windows and the weight, blocks along k.

The windows are gathered number by number (``support.conv``), or by ``unfold``; the products are ``qmatmul``'s, whose bits
have tests of their own.
"""

from __future__ import annotations

import pytest
import torch
from support import bits
from support import conv as definition

import gemmsim as gs

F = torch.nn.functional
SPECS = [
    "mxfp8_e4m3 : fp32", "mxfp4 * mxfp6_e3m2/b8 : e5m10", "nvfp4 : scaled(fp32)", "mxint8 : scaled(exact(fp32), e6m9)",
    "mxfp8_e4m3 * e5m2 : fp32", "* nvfp4 : e5m10/sr8", "bfp(8,16) : fp32", "bfp(5,8)/sr8 * mxfp4 : e5m10/sr8 -> e4m3",
    "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)", "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)",
]  # fmt: skip


def same_bits(got: torch.Tensor, want: torch.Tensor) -> bool:
    return got.dtype == want.dtype and torch.equal(bits(got.contiguous()), bits(want.contiguous()))


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    x.view(-1)[::17] *= 2.0**-9
    x.view(-1)[3::29] = -0.0
    return x


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_are_products_of_windows_with_blocks_along_k(spec, groups):
    x, w = numbers(2, 4, 7, 6), numbers(6, 4 // groups, 3, 2)
    where = ((2, 1), (1, 2), (1, 2), groups)
    count = ((7 + 2 - 2 - 1) // 2 + 1, (6 + 4 - 2 - 1) + 1)
    want = definition.conv(x, w, spec, count, *where, seed=5)
    assert same_bits(gs.qconv2d(x, w, None, *where, spec=spec, seed=5), want)


@pytest.mark.parametrize("spec", SPECS)
def test_transposed_convolutions_too(spec):
    x, w = numbers(2, 4, 5), numbers(4, 3, 3)
    got = gs.qconv_transpose1d(x, w, None, 2, 1, 1, 2, spec=spec, seed=3)
    assert same_bits(got, definition.transposed(x, w, spec, got.shape[2:], (2,), (1,), (1,), 2, seed=3))


@pytest.mark.parametrize("n", [1, 3])
def test_one_and_three_dimensions(n):
    x, w = numbers(2, 3, *(4,) * n), numbers(5, 3, *(2,) * n)
    spec, ones = "mxfp8_e4m3 * nvfp4 : scaled(fp32)", (1,) * n
    want = definition.conv(x, w, spec, (3,) * n, ones, (0,) * n, ones, 1)
    assert same_bits(definition.CONVS[n - 1](x, w, spec=spec), want)


@pytest.mark.parametrize("spec", ["nvfp4/tensor : scaled(fp32)", "nvfp4/tensor * mxfp4 : fp32", "bfp(6,tensor) : fp32"])
def test_what_a_tensor_shares_is_that_of_the_tensor_as_given(spec):
    """Here the largest number is in no window, and each group has its own largest weight."""
    x, w = numbers(1, 4, 5, 5), numbers(4, 2, 2, 2)
    x[0, 0, 4, 4], w[3, 1, 1, 1] = 3000.0, 70.0
    got = gs.qconv2d(x, w, stride=2, groups=2, spec=spec)
    parts = []
    for g in range(2):  # windows, one with the largest number of all x beside them, and the weights of both groups
        windows = definition.windows(x[:, 2 * g : 2 * g + 2], (2, 2), (2, 2), (2, 2), (0, 0), (1, 1))
        rows = torch.cat([windows, torch.full((1, 8), 3000.0)])
        columns = torch.cat([w[2 * g : 2 * g + 2].flatten(1).T, torch.full((8, 1), 70.0)], 1)
        parts.append(gs.qmatmul(rows, columns, spec)[:4, :2])
    assert same_bits(got, torch.cat(parts, 1).T.reshape(1, 4, 2, 2))


@pytest.mark.parametrize("spec", ["mxfp8_e4m3 * mxfp4 : fp32", "nvfp4 : scaled(fp32)"])
def test_gradients_encode_each_operand_along_the_sum_of_their_product(spec):
    x, w = numbers(2, 4, 6, 6).requires_grad_(), numbers(6, 2, 3, 3).requires_grad_()
    where = ((2, 2), (1, 1), (1, 1), 2)
    out = gs.qconv2d(x, w, None, *where, spec=spec)
    grad = numbers(*out.shape, seed=9)
    out.backward(grad)
    assert same_bits(x.grad, definition.transposed(grad, w.detach(), spec, x.shape[2:], *where))
    assert same_bits(w.grad, definition.weight_gradient(x.detach(), grad, spec, w.shape[2:], *where))


def test_gradients_of_roles_and_of_transposed_convolutions():
    formats = gs.QAffineFormats(
        fprop="mxfp8_e4m3 : fp32", dgrad="mxfp8_e5m2 * mxfp8_e4m3 : fp32", wgrad="nvfp4 * mxfp4 : scaled(fp32)"
    )
    x, w = numbers(2, 4, 5).requires_grad_(), numbers(4, 3, 3).requires_grad_()
    out = gs.qconv_transpose1d(x, w, None, 2, spec=formats)
    grad = numbers(*out.shape, seed=2)
    out.backward(grad)
    where = ((2,), (0,), (1,), 1)
    assert same_bits(x.grad, definition.conv(grad, w.detach(), "mxfp8_e5m2 * mxfp8_e4m3 : fp32", (5,), *where))
    want = definition.weight_gradient(grad, x.detach(), "nvfp4 * mxfp4 : scaled(fp32)", (3,), *where)
    assert same_bits(w.grad, want)


def test_specials_bias_images_dtypes_and_strides():
    x, w, bias = numbers(3, 4, 6, 6), numbers(4, 4, 3, 3), numbers(4)
    x[1, 0, 0, 0], w[2, 0, 0, 0] = float("nan"), float("inf")
    spec = "mxfp8_e4m3 : fp32"
    out = gs.qconv2d(x, w, bias, padding=1, spec=spec)
    windows = F.unfold(x, 3, padding=1).transpose(1, 2).reshape(-1, 36)
    want = gs.qmatmul(windows, w.flatten(1).T, spec).reshape(3, 36, 4).transpose(1, 2).reshape(3, 4, 6, 6)
    assert same_bits(out, want + bias.view(-1, 1, 1)) and out[:, 2].isnan().all() and out[1, 0].isnan().any()
    turned = x.transpose(2, 3).contiguous().transpose(2, 3)
    assert same_bits(gs.qconv2d(turned, w, bias, padding=1, spec=spec), out)
    assert torch.equal(gs.qconv2d(x[2:], w, padding=1, spec=spec)[:, :2], want[2:, :2])
    halves = x[2:].bfloat16(), w[:2].bfloat16()
    assert gs.qconv2d(*halves, spec=spec).dtype is torch.bfloat16
    assert gs.qconv2d(x[2, :, :3, :3].double(), w, spec=spec).shape == (4, 1, 1)


@pytest.mark.parametrize("spec", ["mxfp4 : fp32", "nvfp4/tensor : scaled(fp32)"])
def test_compiled_and_vmapped_convolutions_have_the_same_bits(spec):
    xs, w = numbers(3, 2, 4, 5, 5), numbers(4, 4, 3, 3)
    one = torch.stack([gs.qconv2d(x, w, spec=spec) for x in xs])
    assert torch.equal(torch.func.vmap(lambda x: gs.qconv2d(x, w, spec=spec))(xs), one)
    compiled = torch.compile(lambda x: gs.qconv2d(x, w, spec=spec), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(xs[0]), one[0])


def test_an_addend_where_scales_are_taken_apart_is_refused():
    formats = gs.QAffineFormats(fprop="nvfp4 : fp32", bias_in_accumulator=True)
    x, w, bias = numbers(1, 2, 4, 4), numbers(2, 2, 2, 2), numbers(2)
    assert gs.qconv2d(x, w, bias, spec=formats).shape == (1, 2, 3, 3)
    with pytest.raises(gs.SpecError, match="palette"):
        gs.qconv2d(x, w, spec="palette(fp32, e5m10)")
