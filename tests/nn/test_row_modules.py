"""gemmsim.nn: each module is torch's with identity formats, and a value: copied, pickled, loaded."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from support.rounding import assert_near, largest
from torch import nn

import gemmsim as gs
from gemmsim import nn as gnn

ID = "fp32"
NORM, SOFT, GELU = (
    gs.QLayerNormFormats(*[ID] * 7),
    gs.QSoftmaxFormats(ID, ID, ID, None, ID, ID),
    gs.QGELUFormats(ID, ID, ID, ID),
)
QUANTS = {"fwd_quant": ID, "bwd_quant": ID}
ATTENTION = {"spec": gs.QAttentionFormats(":fp32", SOFT, ":fp32"), "projection": ":fp32"}


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


IDS = torch.tensor([[1, 0, 1], [4, 2, 1]])
CASES = {
    "QLayerNorm": (nn.LayerNorm, ((6,),), {}, {"spec": NORM}, [randn(3, 4, 6)]),
    "QRMSNorm": (nn.RMSNorm, ((6,),), {}, {"spec": NORM}, [randn(3, 4, 6)]),
    "QGroupNorm": (nn.GroupNorm, (2, 4), {}, {"spec": NORM}, [randn(3, 4, 6)]),
    "QBatchNorm1d": (nn.BatchNorm1d, (4,), {}, QUANTS, [randn(3, 4, 6)]),
    "QBatchNorm2d": (nn.BatchNorm2d, (4,), {"affine": False}, QUANTS, [randn(3, 4, 6, 2)]),
    "QBatchNorm3d": (nn.BatchNorm3d, (4,), {"track_running_stats": False}, QUANTS, [randn(3, 4, 6, 2, 2)]),
    "QSoftmax": (nn.Softmax, (1,), {}, {"spec": SOFT}, [randn(3, 4, 6)]),
    "QGELU": (nn.GELU, ("tanh",), {}, {"spec": GELU}, [randn(3, 4)]),
    "QSiLU": (nn.SiLU, (), {}, {"spec": GELU}, [randn(3, 4)]),
    "QAvgPool1d": (nn.AvgPool1d, (2, 1, 1), {}, QUANTS, [randn(3, 4, 6)]),
    "QAvgPool2d": (nn.AvgPool2d, (2,), {"ceil_mode": True}, QUANTS, [randn(3, 5, 6)]),
    "QAvgPool3d": (nn.AvgPool3d, (2,), {}, QUANTS, [randn(1, 2, 4, 5, 6)]),
    "QAdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d, ((2, None),), {}, QUANTS, [randn(2, 5, 6)]),
    "QEmbedding": (nn.Embedding, (5, 3, 1), {}, QUANTS, [IDS]),
    "QMultiheadAttention": (nn.MultiheadAttention, (8, 2), {"batch_first": True}, ATTENTION, [randn(2, 5, 8)] * 3),
}  # fmt: skip


def pair(name: str):
    theirs, args, kwargs, formats, inputs = CASES[name]
    torch.manual_seed(0)
    module = theirs(*args, **kwargs)
    return module, getattr(gnn, name).from_float(copy.deepcopy(module), **formats), inputs


def first(result):
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", CASES)
def test_identity_formats_train_as_torch(name):
    module, ours, inputs = pair(name)
    assert isinstance(ours, type(module))
    y, z = first(ours(*inputs)), first(module(*inputs))
    # No sum here has more than 72 numbers, and a norm two of them; a gradient has as many again, and one over the batch.
    assert_near(y, z, 2 * 72 + 16, size=1 + largest(z))
    if z.requires_grad:
        y.square().sum().backward()
        z.square().sum().backward()
        for p, q in zip(ours.parameters(), module.parameters(), strict=True):
            assert_near(p.grad, q.grad, 5 * 72 + 32, size=1 + largest(q.grad))
    module.eval(), ours.eval()
    assert_near(first(ours(*inputs)), first(module(*inputs)), 2 * 72 + 16, size=1 + largest(z))


@pytest.mark.parametrize("name", CASES)
def test_modules_are_built_copied_and_loaded_as_torchs(name):
    module, ours, inputs = pair(name)
    _, args, kwargs, formats, _ = CASES[name]
    built = getattr(gnn, name)(*args, **kwargs, **formats)
    assert list(built.state_dict()) == list(module.state_dict())
    stream = io.BytesIO()
    torch.save(ours.state_dict(), stream)
    stream.seek(0)
    built.load_state_dict(torch.load(stream, weights_only=True))
    stream = io.BytesIO()
    torch.save(ours, stream)
    stream.seek(0)
    want = first(ours.eval()(*inputs))
    for other in (built, copy.deepcopy(ours), torch.load(stream, weights_only=False)):
        assert torch.equal(first(other.eval()(*inputs)), want)
    assert "e8m23" in repr(ours)
    with pytest.raises(gs.DTypeError):
        type(ours).from_float(nn.Identity(), **formats)


def test_batch_norm_statistics_follow_training_and_momentum():
    ours = gnn.QBatchNorm1d(4, momentum=0.25, **QUANTS)
    x = randn(16, 4)
    ours(x)
    # sums of 16 numbers, for the variance of their squares after another, in an order of PyTorch's own here
    assert_near(ours.running_mean, 0.25 * x.mean(0), 16 + 3, size=largest(x))
    assert_near(ours.running_var, 0.75 + 0.25 * x.var(0), 2 * 16 + 6, size=1 + largest(x) ** 2)
    kept = ours.running_mean.clone()
    with torch.enable_grad():
        ours.eval()(x)
    assert torch.equal(ours.running_mean, kept)


@pytest.mark.parametrize(
    "options", [{"add_zero_attn": True}, {"add_bias_kv": True}, {"kdim": 6, "vdim": 4}, {"bias": False}], ids=str
)
def test_attention_options(options):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, **options)
    ours = gnn.QMultiheadAttention.from_float(module, **ATTENTION)
    q, k, v = randn(5, 2, 8), randn(6, 2, options.get("kdim", 8)), randn(6, 2, options.get("vdim", 8))
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    mask = torch.ones(5, 6, dtype=torch.bool).triu(2)
    for got, want in zip(ours(q, k, v, padding, attn_mask=mask), module(q, k, v, padding, attn_mask=mask), strict=True):
        assert_near(
            got, want, 4 * 8 + 16, size=1 + largest(want)
        )  # sums of at most 8 in four products, softmax between


@pytest.mark.parametrize("n", [2, 4, 8])
def test_batch_norm_keeps_pytorchs_variance_whoever_asks(n):
    """One step of few values, where n and n - 1 differ most: layer, mptorch's layer, a rule, instance norm."""
    from gemmsim.compat.mptorch import FloatingPoint
    from gemmsim.compat.mptorch.quant import QBatchNorm1d, make_quant_function
    from gemmsim.emulation import Rule

    x = torch.arange(2.0 * n).reshape(n, 2).square() / 4  # every sum and quotient below is near a float32 number
    plain = nn.BatchNorm1d(2, momentum=0.5)
    plain(x)
    single = make_quant_function(FloatingPoint(8, 23, True), "nearest")
    layers = [gnn.QBatchNorm1d(2, momentum=0.5, **QUANTS), nn.BatchNorm1d(2, momentum=0.5)]
    layers[0](x)
    with gs.emulate([Rule("*", "batch_norm", "fp32")]):
        layers[1](x)
    for layer in layers:
        assert_near(layer.running_var, plain.running_var, 2 * n + 6, size=largest(plain.running_var))
        assert_near(layer.running_mean, plain.running_mean, n + 6, size=largest(plain.running_mean))
    theirs = QBatchNorm1d(2, single, single)
    theirs(x)
    reference = nn.BatchNorm1d(2)
    reference(x)
    assert_near(theirs.moving_var, reference.running_var, 2 * n + 6, size=largest(reference.running_var))
    norms = [nn.InstanceNorm1d(2, momentum=0.5, track_running_stats=True) for _ in range(2)]
    norms[0](x.T[None])
    with gs.emulate([Rule("*", "*_norm", "fp32")]):
        norms[1](x.T[None])
    assert_near(norms[1].running_var, norms[0].running_var, 2 * n + 6, size=largest(norms[0].running_var))
