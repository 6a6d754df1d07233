"""Attention under emulation: PyTorch's steps with its two products replaced, in every form that modules take."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from support import assert_bitwise_equal
from support.leaves import compare, passes, tensors
from support.long import long_but
from support.rounding import assert_near, largest
from torch import nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import gemmsim as gs
from gemmsim.emulation import Rule, emulate

INF = float("-inf")


def operands(*shape, dtype=torch.float32, kv=None, seed=0):
    """q, k, v; with E = 16 the scale and its root are powers of two, so that it does not matter where they stand."""
    g = torch.Generator().manual_seed(seed)
    shapes = [shape, kv or shape, kv or shape]
    return [torch.randn(s, generator=g).to(dtype) for s in shapes]


def mask_of(name, q, k):
    shape = (q.shape[-2], k.shape[-2])
    g = torch.Generator().manual_seed(3)
    if name == "bool":
        return torch.rand(shape, generator=g) > 0.3
    if name == "hidden rows":
        return torch.ones(shape, dtype=torch.bool).index_fill(0, torch.tensor([1]), False)
    return torch.randn(shape, generator=g).to(q.dtype)


def spelled_out(q, k, v, spec, mask=None, scale=None, dropout=0.0):
    """Attention of one dtype, written with this package's products alone."""
    formats = gs.QAffineFormats.of(spec)
    scores = gs.qmatmul(q, k.mT, formats, out_dtype=torch.float64 if q.dtype is torch.float64 else torch.float32)
    scores = scores * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, INF).to(scores.dtype)
    scores = scores if mask is None else scores + mask
    gone = (scores == INF).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(gone, 0.0), -1).masked_fill(gone, 0.0)
    weights = F.dropout(weights, dropout) if dropout else weights
    return gs.qmatmul(weights.to(v.dtype), v, formats)


@pytest.mark.parametrize("mask", [None, "bool", "float", "hidden rows", "causal"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_bits_of_pytorchs_steps(mask, dropout):
    q, k, v = operands(2, 3, 5, 16, kv=(2, 3, 7, 16))
    given = None if mask in (None, "causal") else mask_of(mask, q, k)
    compare(
        lambda *a: F.scaled_dot_product_attention(*a, given, dropout, is_causal=mask == "causal"), q, k, v, spec=":e8m6"
    )


@pytest.mark.parametrize("shape", [(5, 16), (3, 5, 16), (2, 2, 2, 5, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_and_dtypes(shape, dtype):
    compare(F.scaled_dot_product_attention, *operands(*shape, dtype=dtype), spec=":e8m6")


@pytest.mark.parametrize("spec", ["e4m3 : e5m10", "e4m3 * e5m2 : bf16 -> fp16", ":e5m6"])
@pytest.mark.parametrize(("mask", "scale"), [(None, None), ("bool", 0.3), ("float", -1.5), ("hidden rows", None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_scores_are_scaled_after_the_product(spec, mask, scale, dtype):
    q, k, v = operands(2, 3, 5, 12, kv=(2, 3, 7, 12), dtype=dtype)
    mask = None if mask is None else mask_of(mask, q, k)
    expected, _ = passes(lambda *a: spelled_out(*a, spec, mask, scale), q, k, v)
    found, _ = passes(
        lambda *a: F.scaled_dot_product_attention(*a, mask, scale=scale), q, k, v, within=lambda: emulate(spec)
    )
    assert all(map(torch.equal, found, expected))


def test_causal_masks_as_objects():
    q, k, v = operands(2, 3, 5, 12, kv=(2, 3, 7, 12))
    for make, diagonal in ((causal_lower_right, 2), (causal_upper_left, 0)):
        mask = torch.ones(5, 7, dtype=torch.bool).tril(diagonal)
        with emulate("e4m3 : e5m10"):
            found = F.scaled_dot_product_attention(q, k, v, make(5, 7))
        assert torch.equal(found, spelled_out(q, k, v, "e4m3 : e5m10", mask))
    with emulate(":e5m6"), pytest.raises(ValueError, match="causal=True"):
        F.scaled_dot_product_attention(q, k, v, causal_upper_left(5, 7), is_causal=True)


def test_dropout_has_pytorchs_masks():
    q, k, v = operands(2, 4, 5, 8)
    v = torch.ones_like(v)
    torch.manual_seed(2)
    native = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    after = torch.get_rng_state()
    torch.manual_seed(2)
    with emulate(":fp32"):
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert torch.equal(after, torch.get_rng_state())
    assert_near(found, native, 8 + 5 + 16)  # sums of 8 and of 5, softmax and scales


@pytest.mark.parametrize("heads", [(1, 1), (2, 2), (2, 1)])
def test_heads_are_repeated(heads):
    q, k, v = operands(2, 4, 5, 16)
    k, v = k[:, : heads[0]], v[:, : heads[1]]
    compare(lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True), q, k, v, spec=":e8m6")


def test_rows_hidden_entirely_are_zero_with_gradients_of_zero():
    q, k, v = (t.requires_grad_() for t in operands(2, 5, 8))
    for mask in (torch.zeros(5, 5, dtype=torch.bool), torch.full((5, 5), INF)):
        with emulate("e4m3 : e5m10"):
            out = F.scaled_dot_product_attention(q, k, v, mask)
        assert (out == 0).all()
        assert all((g == 0).all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_kinds_of_the_two_products():
    q, k, v = operands(2, 5, 12)
    scores = {name: gs.qmatmul(q, k.mT, spec) for name, spec in (("sdpa.qk", ":e5m3"), ("sdpa.pv", None))}
    for kind, left in scores.items():
        if kind == "sdpa.pv":  # PyTorch's own product has the root of the scale on either side
            left = (q * 12**-0.25) @ (k * 12**-0.25).mT
        weights = torch.softmax(left * (1 / math.sqrt(12)) if kind == "sdpa.qk" else left, -1)
        expected = gs.qmatmul(weights, v, ":e5m3" if kind == "sdpa.pv" else None)
        with emulate(Rule("*", kind, ":e5m3")):
            found = F.scaled_dot_product_attention(q, k, v)
        assert torch.equal(found, expected), kind
    with emulate(Rule("*", "linear", ":e5m3")):
        assert torch.equal(F.scaled_dot_product_attention(q, k, v), torch._C._nn.scaled_dot_product_attention(q, k, v))


def test_bad_calls_raise_pytorchs_errors():
    q, k, v = operands(2, 5, 8)
    bad = [
        ((q, k[..., :4], v), {}),
        ((q, k, v[:, :3]), {}),
        ((q, k.double(), v), {}),
        ((q, k, v, torch.ones(5, 5, dtype=torch.bool)), {"is_causal": True}),
        ((q, k, v, torch.ones(4, 4, dtype=torch.bool)), {}),
        ((q[0, 0], k, v), {}),
    ]
    for args, kwargs in bad:
        with pytest.raises(RuntimeError) as native:
            F.scaled_dot_product_attention(*args, **kwargs)
        with pytest.raises(RuntimeError) as ours, emulate(":e5m6"):
            F.scaled_dot_product_attention(*args, **kwargs)
        assert str(ours.value).split("\n")[0] == str(native.value).split("\n")[0]


def test_spellings():
    q, k, v = operands(2, 2, 5, 8)
    aten = torch.ops.aten
    with emulate("e4m3 : e5m10"):
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        calls = (
            torch._C._nn.scaled_dot_product_attention,
            aten.scaled_dot_product_attention,
            aten.scaled_dot_product_attention.default,
            lambda *a, is_causal: torch._scaled_dot_product_attention_math(*a, is_causal=is_causal)[0],
            lambda *a, is_causal: aten._scaled_dot_product_attention_math.default(*a, None, 0.0, is_causal)[0],
            lambda *a, is_causal: aten._scaled_dot_product_flash_attention_for_cpu(*a, 0.0, is_causal)[0],
        )
        for call in calls:
            assert torch.equal(call(q, k, v, is_causal=True), expected)
        assert torch.equal(F.scaled_dot_product_attention(value=v, query=q, key=k, is_causal=True), expected)
        logs = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[1]
    native = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[1]
    # no further apart than a row's scores are: two operands rounded to e4m3, a sum of 8 and the scores in e5m10
    scores = (q.abs() @ k.abs().mT) * 8**-0.5 * ((1 + 2.0**-4) ** 2 * (1 + 2.0**-11) ** 10 - 1)
    assert bool(((logs - native).abs() <= scores.amax(-1)).all())
    kept = torch.rand(2, 2, 5, 5) > 0.5
    native = torch._scaled_dot_product_attention_math(q, k, v, dropout_p=0.5, dropout_mask=kept)
    with emulate(":fp32"):
        found = torch._scaled_dot_product_attention_math(q, k, v, dropout_p=0.5, dropout_mask=kept)
    for ours, theirs in zip(found, native, strict=True):
        assert_near(ours, theirs, 8 + 5 + 16, size=largest(v))


@pytest.mark.parametrize("outside", [True, False])
def test_autocast_in_both_orders(outside):
    q, k, v = operands(2, 5, 12)
    mask = torch.randn(5, 5)
    narrow = [t.bfloat16() for t in (q, k, v, mask)]
    expected = spelled_out(*narrow[:3], "e4m3 : e5m10", narrow[3])
    contexts = [torch.autocast("cpu", torch.bfloat16), emulate("e4m3 : e5m10")]
    first, second = contexts if outside else reversed(contexts)
    with first, second:
        found = F.scaled_dot_product_attention(q, k, v, mask)
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, expected)


def attention_layer(**more):
    torch.manual_seed(5)
    layer = nn.MultiheadAttention(32, 2, **more)
    for p in layer.parameters():
        nn.init.normal_(p, std=0.3)
    return layer


MODULES = {
    "plain": {},
    "dropout": {"dropout": 0.3},
    "batch first, no bias": {"batch_first": True, "bias": False},
    "other widths": {"kdim": 8, "vdim": 12},
    "more keys": {"add_bias_kv": True, "add_zero_attn": True},
}


@pytest.mark.parametrize("variant", MODULES)
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_multihead_attention(variant, weights, training):
    options = MODULES[variant]
    layer = attention_layer(**options).train(training)
    q, k, v = (
        torch.randn(4, 3, 32),
        torch.randn(5, 3, options.get("kdim", 32)),
        torch.randn(5, 3, options.get("vdim", 32)),
    )
    if options.get("batch_first"):
        q, k, v = (t.transpose(0, 1).contiguous() for t in (q, k, v))
    compare(lambda *a: layer(*a, need_weights=weights), q, k, v, parameters=list(layer.parameters()), spec=":e8m6")
    if "kdim" not in options:
        compare(lambda x: layer(x, x, x, need_weights=weights), q, parameters=list(layer.parameters()), spec=":e8m6")
        compare(lambda x: layer(x, x, x, need_weights=weights), q[0], spec=":e8m6")


@pytest.mark.parametrize("kind", ["pairs", "keys", "both", "heads", "float", "causal"])
@pytest.mark.parametrize("weights", [False, True])
def test_multihead_masks(kind, weights):
    layer, x = attention_layer(batch_first=True).eval(), torch.randn(3, 4, 32)
    pairs = torch.ones(4, 4, dtype=torch.bool).triu(1)
    keys = torch.zeros(3, 4, dtype=torch.bool)
    keys[1, 2:] = True
    masks = {
        "pairs": {"attn_mask": pairs},
        "keys": {"key_padding_mask": keys},
        "both": {"attn_mask": pairs, "key_padding_mask": keys},
        "heads": {"attn_mask": pairs.expand(6, 4, 4)},
        "float": {"attn_mask": torch.randn(4, 4)},
        "causal": {"attn_mask": pairs, "is_causal": True},
    }[kind]
    call = lambda x: layer(x, x, x, need_weights=weights, average_attn_weights=False, **masks)  # noqa: E731
    compare(call, x, parameters=list(layer.parameters()), spec=":e8m6")


def encoder_layer(**more):
    torch.manual_seed(6)
    return nn.TransformerEncoderLayer(32, 2, 48, **{"batch_first": True, **more})


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("training", [False, True])
def test_encoder_layer(norm_first, activation, training):
    layer = encoder_layer(norm_first=norm_first, activation=activation).train(training)
    compare(layer, torch.randn(3, 4, 32), parameters=list(layer.parameters()), spec=":e8m6")
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    call = lambda x: layer(x, src_mask=causal, is_causal=True)  # noqa: E731
    compare(call, torch.randn(3, 4, 32), parameters=list(layer.parameters()), spec=":e8m6")


def test_transformer():
    torch.manual_seed(8)
    model = nn.Transformer(32, 2, 2, 2, 48, batch_first=True)
    source, target = torch.randn(3, 5, 32), torch.randn(3, 4, 32)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    keys = torch.zeros(3, 5, dtype=torch.bool)
    keys[0, 3:] = True
    call = lambda s, t: model(s, t, tgt_mask=causal, src_key_padding_mask=keys.float().masked_fill(keys, INF))  # noqa: E731
    compare(call, source, target, parameters=list(model.parameters()), spec=":e8m6")


@pytest.fixture(params=[True, False])
def fast_path(request):
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(request.param)
    yield request.param
    torch.backends.mha.set_fastpath_enabled(before)


CONFIGS = {
    "one rule": "e4m3 : e5m10",
    "paths": [("*self_attn", ":e5m6"), ("*linear1", ":e5m4"), ("*linear2", "e4m3 : e5m10")],
    "random": ":e5m6/sr",
    "rows": [
        Rule("*", "softmax", "e5m6"),
        Rule("*", "layer_norm", "e5m7"),
        Rule("*", "gelu", "e5m5"),
        Rule("*", "relu", "e5m5"),
    ],
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_inference_path_makes_no_difference(config, mode, fast_path):
    encoder = nn.TransformerEncoder(encoder_layer(), 2, mask_check=True).eval()
    x, keys = torch.randn(3, 4, 32), torch.zeros(3, 4, dtype=torch.bool)
    keys[1, 2:] = True
    for masks in ({}, {"src_key_padding_mask": keys}, {"mask": torch.ones(4, 4, dtype=torch.bool).triu(1)}):
        with emulate(config, seed=1, step=0):
            expected = encoder(x, **masks).detach()
        with emulate(config, seed=1, step=0), mode():
            assert torch.equal(encoder(x, **masks), expected)


def fused_arguments(layer):
    at = layer.self_attn
    weights = (at.in_proj_weight, at.in_proj_bias, at.out_proj.weight, at.out_proj.bias)
    norms = (layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias)
    outer = (layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias)
    gelu = layer.activation_relu_or_gelu == 2
    return (32, 2, *weights, gelu, layer.norm_first, layer.norm1.eps, *norms, *outer)


class Fused(nn.Module):
    """A layer that calls the operator itself, as PyTorch's does in compiled code."""

    def __init__(self, layer):
        super().__init__()
        self.__dict__.update(layer.__dict__)

    def forward(self, x, mask=None, mask_type=None):
        return torch._transformer_encoder_layer_fwd(x, *fused_arguments(self), mask, mask_type)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("norm_first", "activation"), list(product([False, True], ["relu", "gelu"])))
@torch.no_grad()
def test_fused_operator_of_the_encoder_layer(config, norm_first, activation):
    layer = encoder_layer(norm_first=norm_first, activation=activation).eval()
    fused, x = Fused(layer), torch.randn(3, 4, 32)
    keys = torch.zeros(3, 4, dtype=torch.bool)
    keys[1, 2:] = True
    pairs = torch.ones(4, 4, dtype=torch.bool).triu(1)
    asked = {
        (None, None): {},
        (keys, 1): {"src_key_padding_mask": keys},
        (pairs, 0): {"src_mask": pairs},
        (pairs.expand(3, 2, 4, 4), 2): {"src_mask": pairs},
    }
    for given, masks in asked.items():
        with emulate(config, seed=1, step=0):
            expected = layer(x, **masks)
        with emulate(config, seed=1, step=0):
            assert torch.equal(fused(x, *given), expected)


@torch.no_grad()
def test_nested_tensors_in_fused_operators():
    layer = encoder_layer().eval()
    rows = [torch.randn(n, 32) for n in (4, 2, 3)]
    nested = torch.nested.nested_tensor(rows)
    with emulate("e4m3 : e5m10"):
        found = Fused(layer)(nested)
        single = [layer(row.unsqueeze(0))[0] for row in rows]
        at = layer.self_attn
        weights = (at.in_proj_weight, at.in_proj_bias, at.out_proj.weight, at.out_proj.bias)
        out = torch._native_multi_head_attention(nested, nested, nested, 32, 2, *weights, need_weights=False)[0]
        alone = [at(row[None], row[None], row[None])[0][0] for row in rows]
    assert found.is_nested and out.is_nested
    for a, b in zip(found.unbind(), single, strict=True):
        assert_bitwise_equal(a, b)
    for a, b in zip(out.unbind(), alone, strict=True):
        assert_bitwise_equal(a, b)


@torch.no_grad()
def test_fused_operator_of_the_attention_layer():
    layer, x = attention_layer(batch_first=True).eval(), torch.randn(3, 4, 32)
    weights = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)
    configs = [config for name, config in CONFIGS.items() if name != "paths"]
    for config, need, average in product(configs, [True, False], [True, False]):
        with emulate(config, seed=1, step=0):
            expected = layer(x, x, x, need_weights=need, average_attn_weights=average)

        class Outer(nn.Module):
            def forward(self, x, need=need, average=average):
                return torch._native_multi_head_attention(x, x, x, 32, 2, *weights, None, need, average)

        with emulate(config, seed=1, step=0):
            found = Outer()(x)
        assert len(tensors(found)) == len(tensors(expected))
        assert all(map(torch.equal, tensors(found), tensors(expected)))


@pytest.mark.parametrize("training", [False, True])
def test_no_rule_is_pytorchs_own(training):
    layer, x = encoder_layer().train(training), torch.randn(3, 4, 32)
    native, after = passes(layer, x, parameters=list(layer.parameters()))
    for config in (None, [("*", None)], Rule("*", "conv*", ":e5m6")):
        found, state = passes(layer, x, parameters=list(layer.parameters()), within=lambda c=config: emulate(c))
        assert all(map(torch.equal, found, native)) and torch.equal(state, after)


@pytest.mark.parametrize("training", [False, True])
def test_float32_products_are_close_to_native(training):
    torch.manual_seed(8)
    model = nn.Transformer(32, 2, 2, 2, 48, batch_first=True).train(training)
    inputs, parameters = (torch.randn(3, 5, 32), torch.randn(3, 4, 32)), list(model.parameters())
    native, after = passes(model, *inputs, parameters=parameters)
    found, state = passes(model, *inputs, parameters=parameters, within=lambda: emulate(":fp32"))
    assert torch.equal(state, after)
    # at most 14 products follow one another, of at most 48 terms
    largest = max(t.abs().max() for t in native)
    for a, b in zip(found, native, strict=True):
        assert (a - b).abs().max() <= 14 * 48 * 2.0**-24 * largest


@pytest.mark.parametrize("config", **long_but(CONFIGS, "rows"))
def test_compiled_attention_has_eager_bits(config):
    torch._dynamo.reset()
    encoder = nn.TransformerEncoder(encoder_layer(dropout=0.0), 2, enable_nested_tensor=False).eval()
    x = torch.randn(3, 4, 32)
    with torch.no_grad():
        with emulate(config, seed=1, step=0):
            expected = encoder(x)
        compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
        with emulate(config, seed=1, step=0):
            assert torch.equal(compiled(x), expected)
