"""mptorch's layers and formats where they say nothing, and its private passes of softmax and layer norm."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.compat.mptorch import Binary8, FloatingPoint, SuperNormalFloat, quant

F16 = FloatingPoint(5, 10, True)
IDENTITY = FloatingPoint(8, 23, True)
#: Layer, arguments after the formats, shape of an input of 8 channels.
LAYERS = [
    ("Linear", {}, (5, 7, 8)),
    ("Conv1d", {"stride": 2}, (3, 8, 14)),
    ("Conv2d", {"padding": 1, "groups": 4}, (3, 8, 14, 13)),
    ("Conv2d", {"padding": 2, "groups": 2, "stride": 2, "dilation": 2}, (3, 8, 14, 13)),
    ("Conv2d", {"padding": "same", "padding_mode": "reflect"}, (3, 8, 7, 9)),
    ("Conv3d", {"groups": 2}, (2, 8, 5, 6, 7)),
    ("ConvTranspose1d", {"padding": 1, "stride": 2, "output_padding": 1}, (3, 8, 14)),
    ("ConvTranspose2d", {"groups": 4, "padding": 1}, (3, 8, 14, 13)),
    ("ConvTranspose2d", {"groups": 2, "stride": 2, "padding": 1, "dilation": 2, "output_padding": 1}, (3, 8, 9, 8)),
    ("ConvTranspose3d", {"groups": 2}, (2, 8, 5, 6, 7)),
]


@pytest.mark.parametrize("name, options, shape", LAYERS, ids=lambda v: str(v))
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("quantisers", ["none", "functions", "casts"])
def test_without_formats_of_products_the_bits_are_those_of_pytorch(name, options, shape, bias, quantisers):
    quant_of = {
        "none": quant.QAffineFormats().input_quant,
        "functions": lambda x: x.clone(),
        "casts": (IDENTITY, "nearest"),
    }
    sides = ("input", "weight", "bias", "output", "grad")
    formats = quant.QAffineFormats(
        **{f"{side}_quant": quant_of[quantisers] for side in sides} if quantisers != "none" else {}
    )
    sizes = (8, 16) if name == "Linear" else (8, 16, 3)
    ours = getattr(quant, f"Q{name}")(*sizes, formats, bias=bias, **options)
    theirs = getattr(nn, name)(*sizes, bias=bias, **options)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = []
    for layer in (ours, theirs):
        leaf = x.clone().requires_grad_()
        y = layer(leaf)
        y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(2)))
        found.append([y.detach(), leaf.grad, *(p.grad for p in layer.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_bias_gradients_of_other_dtypes_and_of_no_images():
    formats = quant.QAffineFormats(input_quant=(F16, "nearest"))
    for dtype in (torch.float64, torch.bfloat16):
        layer, plain = quant.QConv2d(4, 6, 3, formats, dtype=dtype), nn.Conv2d(4, 6, 3, dtype=dtype)
        plain.load_state_dict(layer.state_dict())
        x = torch.randn(2, 4, 6, 6, dtype=dtype)
        for module, v in ((layer, x), (plain, quant.float_quantize(x, 5, 10, "nearest"))):
            module(v).sum().backward()
        assert torch.equal(layer.bias.grad, plain.bias.grad)
    empty = quant.QConv2d(4, 6, 3, formats)
    empty(torch.zeros(0, 4, 6, 6)).sum().backward()
    assert torch.equal(empty.bias.grad, torch.zeros(6))


def test_scaled_formats_have_their_widths():
    e4m3, e5m2 = FloatingPoint(4, 3), FloatingPoint(5, 2)
    given = quant.QAffineFormats(
        fwd_mac=F16, use_scaling=True, input_scaled_format=e4m3, weight_scaled_format=e4m3, grad_scaled_format=e5m2
    )
    quantised = quant.QAffineFormats(fwd_mac=F16, input_quant=(e4m3, "nearest"), grad_quant=(e5m2, "nearest"))
    for formats in (given, quantised):
        assert (formats.input_scaled_format.exp, formats.input_scaled_format.man) == (4, 3)
        assert (formats.grad_scaled_format.exp, formats.grad_scaled_format.man) == (5, 2)
        assert pickle.loads(pickle.dumps(formats)) == formats == copy.deepcopy(formats)
        assert gs.QAffineFormats.from_dict(formats.to_dict()).input_scaled_format == e4m3.format
    assert quant.QAffineFormats().input_scaled_format is None
    x, w = torch.randn(3, 8), torch.randn(4, 8)
    assert torch.equal(
        gs.qlinear(x, w, None, given), gs.qlinear(x, w, None, gs.QAffineFormats.from_dict(given.to_dict()))
    )


def test_softmax_by_logarithms_has_no_exponentials():
    formats = quant.QSoftmaxFormats(fwd_off=F16, fwd_lse=F16, bwd_add=F16, bwd_mul=F16)
    assert not hasattr(formats, "fwd_exp") and not hasattr(formats, "fwd_acc") and formats.use_lse
    same = pickle.loads(pickle.dumps(formats))
    assert same == formats == copy.deepcopy(formats) and hash(same) == hash(formats)
    regular = quant.QSoftmaxFormats(F16, F16, F16)
    assert hasattr(regular, "fwd_exp") and regular != formats and not formats.is_native
    x = torch.randn(3, 7)
    plain = gs.QSoftmaxFormats(F16.step(), None, None, F16.step(), F16.step(), F16.step())
    assert torch.equal(quant.qsoftmax(x, -1, formats), gs.qsoftmax(x, -1, plain))
    assert gs.QSoftmaxFormats.from_dict(formats.to_dict()) == plain


@pytest.mark.parametrize(
    "prefix, number", [("float", F16), ("superfp", SuperNormalFloat(4, 3, 1)), ("binary8", Binary8(3))]
)
def test_passes_of_each_number_kind(prefix, number):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
    g = torch.ones_like(x)
    regular = quant.QSoftmaxFormats(number, number, number, None, number, number)
    by_logarithms = quant.QSoftmaxFormats(number, None, None, number, number, number)
    norm = quant.QLayerNormFormats(*[number] * 7)
    call = {
        "softmax_forward": lambda f: f(x, -1, regular),
        "softmax_lse_forward": lambda f: f(x, -1, by_logarithms),
        "softmax_backward": lambda f: f(x, g, -1, regular),
        "layernorm_forward": lambda f: f(x, 8, g[0], None, 1e-5, norm),
        "layernorm_backward": lambda f: f(x, g, 8, g[0], None, 1e-5, norm),
    }
    leaf = x.clone().requires_grad_()
    y = quant.qsoftmax(leaf, -1, regular)
    z = quant.qlayernorm(leaf, 8, g[0], None, 1e-5, norm)
    want = {
        "softmax_forward": y,
        "softmax_lse_forward": quant.qsoftmax(x, -1, by_logarithms),
        "softmax_backward": torch.autograd.grad(y, leaf, g)[0],
        "layernorm_forward": z,
        "layernorm_backward": torch.autograd.grad(z, leaf, g)[0],
    }
    for name, run in call.items():
        function = getattr(quant.quant_function, f"{prefix}_{name}")
        assert function is getattr(quant, f"{prefix}_{name}") and pickle.loads(pickle.dumps(function)) is function
        got = run(function)
        assert torch.equal(got[0] if isinstance(got, tuple) else got, want[name].detach())
        other = getattr(quant, f"{'superfp' if prefix == 'float' else 'float'}_{name}")
        with pytest.raises(AssertionError, match="allowed"):
            run(other)
    with pytest.raises(AssertionError, match="fwd_lse"):
        getattr(quant, f"{prefix}_softmax_lse_forward")(x, -1, regular)
