"""Recurrent networks under emulation: PyTorch's steps with its products replaced."""

import pytest
import torch
from support.leaves import compare, passes, tensors
from support.long import long_but
from support.rounding import assert_near
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import gemmsim as gs
from gemmsim.emulation import Rule, emulate

CLASSES = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
}
VARIANTS = {
    "plain": {},
    "deep": {"num_layers": 3, "dropout": 0.4},
    "both directions": {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
    "no bias, batch first": {"num_layers": 2, "bias": False, "batch_first": True},
    "projected": {"num_layers": 2, "proj_size": 3, "bidirectional": True},
}
CASES = [(c, v) for c in CLASSES for v in VARIANTS if v != "projected" or c == "lstm"]


def network(cls, variant, **more):
    torch.manual_seed(7)
    return CLASSES[cls](5, 4, **VARIANTS[variant], **more)


@pytest.mark.parametrize(("cls", "variant"), CASES)
def test_bits_of_pytorchs_steps(cls, variant):
    net = network(cls, variant)
    compare(net, torch.randn(6, 3, 5), parameters=list(net.parameters()))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(("batch", "width"), [(1, 67), (3, 67), (6, 9)])
def test_rows_that_are_longer_than_a_vector(cls, batch, width):
    """PyTorch's gates have other bits where a row fills vectors than at its end."""
    net = CLASSES[cls](5, width, num_layers=2, bidirectional=True)
    compare(net, torch.randn(4, batch, 5), parameters=list(net.parameters()))


@pytest.mark.parametrize(("cls", "variant"), CASES)
def test_packed_sequences(cls, variant):
    net = network(cls, variant)

    def call(x):
        packed = pack_padded_sequence(x, [2, 6, 4, 6], batch_first=net.batch_first, enforce_sorted=False)
        out, states = net(packed)
        return out.data, states

    x = torch.randn(4, 6, 5) if net.batch_first else torch.randn(6, 4, 5)
    compare(call, x, parameters=list(net.parameters()))


@pytest.mark.parametrize("cls", CLASSES)
def test_given_states_and_inputs_without_a_batch(cls):
    net = network(cls, "both directions")
    states = [torch.randn(4, 4) for _ in range(2 if cls == "lstm" else 1)]

    def call(x, *hx):
        return net(x, hx if cls == "lstm" else hx[0])

    compare(call, torch.randn(6, 5), *states, parameters=list(net.parameters()))
    states = [torch.randn(4, 3, 4) for _ in states]
    packed = [torch.randn(n, 5) for n in (5, 4, 1)]
    compare(lambda *a: call(pack_sequence(a[:3]), *a[3:])[1], *packed, *states, parameters=list(net.parameters()))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cls", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(cls, bias):
    cell = cls(5, 4, bias=bias)

    def call(*steps):
        state = None
        for x in steps:
            state = cell(x, state)
        return state

    compare(call, *torch.randn(3, 2, 5), parameters=list(cell.parameters()))
    compare(call, torch.randn(5), parameters=list(cell.parameters()))


def test_relu_cell():
    cell = nn.RNNCell(5, 4, nonlinearity="relu")
    compare(cell, torch.randn(2, 5), torch.randn(2, 4), parameters=list(cell.parameters()))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(cls, dtype):
    net = network(cls, "deep").to(dtype)
    compare(net, torch.randn(6, 3, 5, dtype=dtype), parameters=list(net.parameters()))


@pytest.mark.parametrize(("cls", "variant"), CASES)
def test_autocast_gives_the_dtypes_of_the_native_run(cls, variant):
    if cls == "lstm" and variant != "projected" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("PyTorch's own LSTM in bfloat16 needs AVX-512 or as much")
    net, x = network(cls, variant), torch.randn(6, 3, 5)
    with torch.autocast("cpu", torch.bfloat16):
        native = tensors(net(x))
        with emulate(":e5m6"):
            inner = tensors(net(x))
    with emulate(":fp32"), torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(0)
        outer = tensors(net(x))
    assert [t.dtype for t in inner] == [t.dtype for t in outer] == [t.dtype for t in native]
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        native = tensors(net(x))
    for a, b in zip(outer, native, strict=True):
        # Values below 1. PyTorch's own kernels round to bfloat16 where ours do not, and the other way round: twice.
        assert_near(a.float(), b.float(), 2, size=1.0, dtype=torch.bfloat16)


@pytest.mark.parametrize("cls", ["gru", "tanh", "relu"])
def test_autocast_has_the_bits_of_pytorchs_steps(cls):
    net = network(cls, "both directions")
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        compare(net, torch.randn(6, 3, 5), parameters=list(net.parameters()))


@pytest.mark.parametrize(("cls", "variant"), CASES)
def test_float32_products_are_close_to_native(cls, variant):
    net = network(cls, variant)
    x, parameters = torch.randn(6, 3, 5), list(net.parameters())
    native, after = passes(net, x, parameters=parameters)
    found, state = passes(net, x, parameters=parameters, within=lambda: emulate(":fp32"))
    assert torch.equal(state, after)
    # a value is the end of at most 6 steps of 2 to 3 layers of sums of fewer than 32 terms
    largest = max(t.abs().max() for t in native)
    for a, b in zip(found, native, strict=True):
        assert (a - b).abs().max() <= 18 * 32 * 2.0**-24 * largest


@pytest.mark.parametrize("cls", CLASSES)
def test_no_rule_is_pytorchs_own(cls):
    net, x = network(cls, "both directions"), torch.randn(6, 3, 5)
    native, after = passes(net, x, parameters=list(net.parameters()))
    for config in (None, [("*", None)], Rule("*", "conv*", ":e5m6")):
        found, state = passes(net, x, parameters=list(net.parameters()), within=lambda c=config: emulate(c))
        assert all(map(torch.equal, found, native)) and torch.equal(state, after)


def test_each_product_has_its_kind():
    net, x = network("lstm", "projected"), torch.randn(6, 3, 5)
    w_ih, w_hh, w_hr = (getattr(net, f"weight_{name}_l0") for name in ("ih", "hh", "hr"))
    step = torch.randn(1, 1, 5)
    one = nn.LSTM(5, 4, proj_size=3)
    one.load_state_dict({k: v for k, v in net.state_dict().items() if k.endswith("_l0")})
    h, c = torch.randn(1, 1, 3), torch.randn(1, 1, 4)
    for kind in ("rnn.ih", "rnn.hh", "rnn.hr"):
        with emulate(Rule("*", kind, ":e5m3")), torch.no_grad():
            found = one(step, (h, c))[1]

        def product(a, w, name, kind=kind):
            return gs.qmatmul(a, w.mT, ":e5m3") if name == kind else a @ w.mT

        gates = product(h[0], w_hh, "rnn.hh") + one.bias_hh_l0
        gates = gates + (product(step[0], w_ih, "rnn.ih") + one.bias_ih_l0)
        i, f, g, o = gates.chunk(4, 1)
        cell = f.sigmoid() * c[0] + i.sigmoid() * g.tanh()
        # sums of 5 and 3 terms with two biases, and fewer than 20 roundings of numbers below 1 after them
        assert_near(found[1][0], cell, 5 + 3 + 2 + 20, size=1.0)
        hidden = product(o.sigmoid() * cell.tanh(), w_hr, "rnn.hr")
        if kind == "rnn.hr":  # last places of operands hardly ever turn a rounding to four bits, and do not here
            assert torch.equal(found[0][0], hidden)
        else:
            assert_near(found[0][0], hidden, 5 + 3 + 2 + 20 + 4, size=1.0)
    with emulate(Rule("*", "linear", ":e5m3")):
        assert torch.equal(net(x)[0], net(x)[0])


def test_random_roundings_differ_between_steps_and_repeat():
    net = nn.RNN(1, 64, bias=False, nonlinearity="relu")
    with torch.no_grad():
        net.weight_ih_l0.zero_()
        net.weight_hh_l0.copy_(torch.eye(64))
    h = torch.full((1, 1, 64), 1 + 2.0**-4)
    config = ":e5m3/sr8"
    with emulate(config, seed=1, step=0), torch.no_grad():
        before = torch.get_rng_state()
        first = net(torch.zeros(1, 1, 1), h)[0]
        many = torch.cat([net(torch.zeros(2, 1, 1), h)[0]])
        assert torch.equal(before, torch.get_rng_state())
    with emulate(config, seed=1, step=0), torch.no_grad():
        again = net(torch.zeros(1, 1, 1), h)[0]
    assert torch.equal(first, again)
    assert set(first.unique().tolist()) == {1.0, 1.125}
    assert not torch.equal(first[0], many[0])  # another step of the context
    two = nn.RNN(1, 64, 2, bias=False, nonlinearity="relu")
    with torch.no_grad():
        for name, weight in two.named_parameters():
            weight.copy_(torch.eye(64)) if "hh" in name else weight.zero_()
        with emulate(config, seed=1, step=0):
            states = two(torch.zeros(1, 1, 1), h.expand(2, 1, 64).contiguous())[1]
    assert not torch.equal(states[0], states[1])  # two layers of one call


def test_bad_calls_raise_pytorchs_errors():
    net, x = network("lstm", "plain"), torch.randn(6, 3, 5)
    with emulate(":e5m6"):
        with pytest.raises(RuntimeError, match="must be equal to input_size|size"):
            net(x[..., :4])
        with pytest.raises(RuntimeError, match="larger than 0"):
            torch.lstm(x[:0], [torch.zeros(1, 3, 4)] * 2, list(net.parameters()), True, 1, 0.0, True, False, False)
        with pytest.raises((RuntimeError, ValueError)):
            torch.lstm(x, [torch.zeros(1, 3, 4)] * 2, list(net.parameters())[:3], True, 1, 0.0, True, False, False)
        with pytest.raises((RuntimeError, ValueError)):
            net(x.double())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference(mode):
    net, x = network("gru", "both directions").eval(), torch.randn(6, 3, 5)
    with emulate(":e5m6"):
        expected = net(x)[0]
        with mode():
            assert torch.equal(net(x)[0], expected)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_operators_of_exported_programs(name):
    net, x = network(name, "plain").eval(), torch.randn(6, 3, 5)
    zeros = torch.zeros(1, 3, 4)
    hx = [zeros, zeros] if name == "lstm" else zeros
    call = (x, hx, list(net.parameters()), True, 1, 0.0, False, False, False)
    with emulate(":e5m6"):
        expected = net(x)[0]
        assert torch.equal(getattr(torch.ops.aten, name)(*call)[0], expected)
        assert torch.equal(getattr(torch.ops.aten, name).input(*call)[0], expected)


COMPILED = {
    "one rule": ":e5m6",
    "random": ":e5m6/sr",
    "kinds": [Rule("*", "rnn.hh", ":e5m6"), Rule("*", "tanh", "e5m4")],
}


@pytest.mark.parametrize("config", **long_but(COMPILED, "random"))
@pytest.mark.parametrize("cls", **long_but({name: name for name in CLASSES}, "lstm"))
def test_compiled(cls, config):
    net, x = network(cls, "both directions").eval(), torch.randn(2, 3, 5)  # every step is traced
    with emulate(config, seed=1, step=0):
        expected = net(x)[0]
    torch._dynamo.reset()
    with emulate(config, seed=1, step=0), torch._dynamo.config.patch(allow_rnn=True):
        assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(x)[0], expected)
