"""Layers of attention and recurrent networks where other contexts hold too: compilers, autocast, functorch, paths."""

import pytest
import torch
import torch.nn.functional as F
from support.leaves import compare, passes
from support.long import long_but
from support.rounding import assert_near
from torch import nn

from gemmsim.emulation import emulate

KEYS = torch.zeros(3, 4, dtype=torch.bool)
KEYS[1, 2:] = True


CONFIGS = {"one rule": "e4m3 : e5m10", "paths": [("self_attn", ":e5m6"), ("linear2", ":e5m4")]}


def layer(**more):
    torch.manual_seed(6)
    return nn.TransformerEncoderLayer(32, 2, 48, **{"batch_first": True, "dropout": 0.0, **more})


def data():
    return torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("training", **long_but({"inference": False, "training": True}, "inference"))
@pytest.mark.parametrize("config", **long_but(CONFIGS, "paths"))
def test_compiled_layers_with_padding(training, config):
    net, x = layer().train(training), data()
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    expected, _ = passes(lambda x: net(x, src_key_padding_mask=KEYS), x, within=lambda: emulate(config))
    found, _ = passes(lambda x: compiled(x, src_key_padding_mask=KEYS), x, within=lambda: emulate(config))
    assert all(map(torch.equal, found, expected))
    with torch.no_grad(), emulate(config):  # the fused operator, if not in training
        assert torch.equal(compiled(x, src_key_padding_mask=KEYS), expected[0])


def test_wrong_masks_of_keys_are_refused_in_pytorchs_words():
    net = nn.MultiheadAttention(32, 2, batch_first=True)
    with emulate(":e5m6"), pytest.raises(AssertionError, match="Expected key_padded_mask.shape"):
        net(data(), data(), data(), key_padding_mask=torch.zeros(3, 5, dtype=torch.bool))


def test_paths_of_the_parts():
    """A rule for one part is that part under emulation, the others as they are."""
    net, x = layer(), data()

    def parts(emulated):
        def run(name, call, *args):
            if name == emulated:
                with emulate(":e5m6"):
                    return call(*args)
            return call(*args)

        y = net.norm1(x + run("self_attn", lambda t: net.self_attn(t, t, t, need_weights=False)[0], x))
        return net.norm2(y + run("linear2", net.linear2, F.relu(run("linear1", net.linear1, y))))

    for name in ("self_attn", "linear1", "linear2"):
        with emulate([(name, ":e5m6")]):
            assert torch.equal(net(x), parts(name))


def test_contexts_nest_and_end():
    net, x = layer(), data()
    native = net(x)
    with emulate(":e5m6"):
        outer = net(x)
        with emulate(None):
            assert torch.equal(net(x), native)
        with emulate(":e5m4"):
            inner = net(x)
        assert torch.equal(net(x), outer)
    with emulate(":e5m4"):
        assert torch.equal(net(x), inner)
    assert torch.equal(net(x), native)
    with emulate([("linear1", ":e5m4")], seed=1, step=0):
        with pytest.raises(AssertionError, match="embedding dimension"):
            net(x[..., :7])
        expected = net(x)
    with emulate([("linear1", ":e5m4")], seed=1, step=0):
        assert torch.equal(net(x), expected)


@pytest.mark.parametrize("outside", [True, False])
def test_autocast_of_layers(outside):
    net, x = layer(), data()
    with torch.autocast("cpu", torch.bfloat16):
        native = net(x)
    contexts = [torch.autocast("cpu", torch.bfloat16), emulate(":fp32")]
    first, second = contexts if outside else reversed(contexts)
    with first, second:
        found = net(x)
    assert found.dtype is native.dtype
    # A layer norm's results below 4, rounded to bfloat16 at its end, and the sum before it that was rounded, too.
    assert_near(found.float(), native.float(), 1, size=4.0, dtype=torch.bfloat16)


def test_autocast_has_the_bits_of_pytorchs_steps():
    net, x = nn.MultiheadAttention(32, 2, dropout=0.3), data()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        compare(lambda x: net(x, x, x), x, parameters=list(net.parameters()), spec=":e8m6")


def test_functorch():
    q = torch.randn(3, 2, 5, 16)
    # PyTorch's gates have other bits where vectors are full: sizes at which they are not, in a batch of all either
    gru, x = nn.GRU(5, 2), torch.randn(2, 6, 2, 5)
    with emulate("e4m3 : e5m10"):
        expected = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert torch.equal(torch.vmap(lambda t: F.scaled_dot_product_attention(t, t, t, is_causal=True))(q), expected)
        assert torch.equal(torch.vmap(lambda t: gru(t)[0])(x)[1], gru(x[1])[0])
        found = torch.func.grad(lambda t: F.scaled_dot_product_attention(t, t, t).square().sum())(q)
        given = q.clone().requires_grad_()
        F.scaled_dot_product_attention(given, given, given).square().sum().backward()
        assert torch.equal(found, given.grad)
        parameters = dict(gru.named_parameters())
        assert torch.equal(torch.func.functional_call(gru, parameters, (x[0],))[0], gru(x[0])[0])


def test_nested_tensors_are_refused_or_pytorchs():
    """Layers refuse them, as PyTorch's do where they do not take their inference path; products are PyTorch's."""
    rows = torch.nested.nested_tensor([torch.randn(4, 32), torch.randn(2, 32)])
    weight = torch.randn(5, 32)
    with torch.no_grad():
        expected = F.linear(rows, weight)
        with emulate(":e5m6"):
            assert all(map(torch.equal, F.linear(rows, weight).unbind(), expected.unbind()))
            with pytest.raises(AssertionError, match="does not support NestedTensor"):
                layer().eval()(rows)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    net, x = layer(dropout=0.3).train(), data()
    parameters = list(net.parameters())
    expected, after = passes(net, x, parameters=parameters, within=lambda: emulate(":e5m6"))
    call = lambda x: torch.utils.checkpoint.checkpoint(net, x, use_reentrant=reentrant)  # noqa: E731
    given = x.clone().requires_grad_()
    torch.manual_seed(0)
    with emulate(":e5m6"):
        out = call(given)
    loss = (out.double() * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum()
    loss.backward()
    found = [out.detach(), given.grad, *(p.grad for p in parameters)]
    assert all(map(torch.equal, found, expected))
