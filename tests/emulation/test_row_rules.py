"""Rules for softmax, normalisations and activations: only those that name them reach them."""

import pytest
import torch
import torch.nn.functional as F
from emulation.compiling import forget, graphs
from support.long import long_but
from support.rounding import assert_near, largest
from torch import nn

import gemmsim as gs
from gemmsim.emulation import Config, ConfigError, Rule, emulate
from gemmsim.emulation.rowwise_rules import ROW_KINDS, MapFormats
from gemmsim.formats import FormatError

X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))
W, B = torch.rand(8) + 0.5, torch.randn(8)
CW, CB = torch.rand(6) + 0.5, torch.randn(6)
CM, CV = torch.randn(6), torch.rand(6) + 0.5
CAST = "e5m6"

#: kind -> (the operation rounded, every spelling of it)
CALLS = {
    "softmax": (
        lambda x, f: gs.qsoftmax(x, 1, f),
        [
            lambda x: F.softmax(x, 1),
            lambda x: F.softmax(x, dim=1),
            lambda x: torch.softmax(x, 1),
            lambda x: torch.softmax(input=x, dim=1),
            lambda x: x.softmax(1),
            lambda x: x.softmax(dim=-2),
            lambda x: torch.special.softmax(x, 1),
            lambda x: nn.Softmax(1)(x),
            lambda x: F.softmin(-x, 1),
            lambda x: torch.ops.aten.softmax.int(x, 1),
            lambda x: torch.ops.aten._softmax(x, 1, False),
            lambda x: torch.softmax(x, 1, out=torch.empty(0)) if not x.requires_grad else torch.softmax(x, 1),
        ],
    ),
    "log_softmax": (
        lambda x, f: gs.qlogsoftmax(x, 1, f, f),
        [
            lambda x: F.log_softmax(x, 1),
            lambda x: F.log_softmax(x, dim=-2),
            lambda x: torch.log_softmax(input=x, dim=1),
            lambda x: x.log_softmax(1),
            lambda x: torch.special.log_softmax(x, 1),
            lambda x: nn.LogSoftmax(1)(x),
            lambda x: torch.ops.aten.log_softmax.int(x, 1),
            lambda x: torch.ops.aten._log_softmax(x, 1, False),
        ],
    ),
    "layer_norm": (
        lambda x, f: gs.qlayernorm(x, 8, W, B, 1e-3, f),
        [
            lambda x: F.layer_norm(x, (8,), W, B, 1e-3),
            lambda x: F.layer_norm(x, [8], bias=B, weight=W, eps=1e-3),
            lambda x: torch.layer_norm(x, (8,), W, B, 1e-3, False),
            lambda x: torch.ops.aten.layer_norm(x, [8], W, B, 1e-3),
        ],
    ),
    "rms_norm": (
        lambda x, f: gs.qrmsnorm(x, (6, 8), None, None, f),
        [
            lambda x: F.rms_norm(x, (6, 8)),
            lambda x: torch.rms_norm(x, (6, 8)),
            lambda x: nn.RMSNorm((6, 8), elementwise_affine=False)(x),
        ],
    ),
    "group_norm": (
        lambda x, f: gs.qgroupnorm(x, 2, CW, CB, 1e-5, f),
        [lambda x: F.group_norm(x, 2, CW, CB), lambda x: torch.group_norm(x, 2, CW, CB, 1e-5, True)],
    ),
    "batch_norm": (
        lambda x, f: gs.qbatchnorm(x, CM, CV, CW, CB, False, 0.1, 1e-5, f, f),
        [
            lambda x: F.batch_norm(x, CM, CV, CW, CB),
            lambda x: F.batch_norm(x, CM, running_var=CV, bias=CB, weight=CW, training=False, eps=1e-5),
            lambda x: torch.batch_norm(x, CW, CB, CM, CV, False, 0.1, 1e-5, False),
            lambda x: torch.ops.aten.batch_norm(x, CW, CB, CM, CV, False, 0.1, 1e-5, False),
        ],
    ),
    "instance_norm": (
        lambda x, f: torch.stack([gs.qbatchnorm(e[None], None, None, CW, CB, True, 0.1, 1e-5, f, f)[0] for e in x]),
        [
            lambda x: F.instance_norm(x, None, None, CW, CB),
            lambda x: F.instance_norm(x, weight=CW, bias=CB, eps=1e-5),
            lambda x: torch.instance_norm(x, CW, CB, None, None, True, 0.1, 1e-5, False),
            lambda x: torch.ops.aten.instance_norm(x, CW, CB, None, None, True, 0.1, 1e-5, False),
        ],
    ),
    "gelu": (
        lambda x, f: gs.qgelu(x, f, "tanh"),
        [
            lambda x: F.gelu(x, approximate="tanh"),
            nn.GELU("tanh"),
            lambda x: torch.ops.aten.gelu(x, approximate="tanh"),
        ],
    ),
    "silu": (gs.qsilu, [F.silu, nn.SiLU(), lambda x: F.silu(x * 1, inplace=True), torch.ops.aten.silu]),
    "sigmoid": (
        lambda x, f: gs.qsigmoid(x, f, f),
        [
            torch.sigmoid,
            torch.Tensor.sigmoid,
            torch.special.expit,
            F.sigmoid,
            nn.Sigmoid(),
            lambda x: (x * 1).sigmoid_(),
        ],
    ),
    "tanh": (
        lambda x, f: gs.qtanh(x, f, f),
        [torch.tanh, torch.Tensor.tanh, F.tanh, nn.Tanh(), lambda x: torch.tanh_(x * 1), lambda x: x - F.tanhshrink(x)],
    ),
    "relu": (
        lambda x, f: gs.qrelu(x, f, f),
        [
            F.relu,
            torch.relu,
            lambda x: x.relu(),
            nn.ReLU(),
            lambda x: F.relu(x * 1, inplace=True),
            lambda x: (x * 1).relu_(),
        ],
    ),
}
NATIVE = {kind: spellings[0] for kind, (_, spellings) in CALLS.items()}


def both(call, x=X):
    x = x.detach().requires_grad_()
    out = call(x)
    (grad,) = torch.autograd.grad((out * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum(), x)
    return out.detach(), grad


@pytest.mark.parametrize("kind", CALLS)
def test_every_spelling(kind):
    rounded, spellings = CALLS[kind]
    expected = both(lambda x: rounded(x, CAST))
    assert not torch.equal(expected[0], both(NATIVE[kind])[0])
    for number, call in enumerate(spellings):
        with emulate(Rule("*", kind, CAST)):
            found = both(call)
        if kind == "tanh" and number == len(spellings) - 1:  # x - (x - tanh x)
            for ours, theirs in zip(found, expected, strict=True):
                assert_near(ours, theirs, 2, size=largest(X, theirs))
            continue
        assert all(map(torch.equal, found, expected)), (kind, number)


@pytest.mark.parametrize("kind", CALLS)
def test_other_rules_do_not_reach(kind):
    expected = both(NATIVE[kind])
    others = [":e5m3", Rule("*", "s*", ":e5m3"), [Rule("*", k, CAST) for k in ROW_KINDS if k != kind]]
    for config in (*others, Rule("*", kind, None), [Rule("*", kind, None), Rule("*", kind, CAST)]):
        with emulate(config):
            assert all(map(torch.equal, both(NATIVE[kind]), expected))


def test_batch_norm_in_training_keeps_its_statistics():
    layers = [nn.BatchNorm1d(6) for _ in range(2)]
    expected = [torch.zeros(6), torch.ones(6)]
    for _ in range(2):
        with emulate([Rule("*", "batch_norm", {"fwd": CAST, "bwd": "e5m3"}), Rule("*", "*_norm", "e5m3")]):
            found = both(layers[0])
        w, b = layers[1].weight, layers[1].bias
        wanted = both(lambda x, w=w, b=b: gs.qbatchnorm(x, *expected, w, b, True, 0.1, 1e-5, CAST, "e5m3"))
        assert all(map(torch.equal, found, wanted))
    assert torch.equal(layers[0].running_mean, expected[0]) and torch.equal(layers[0].running_var, expected[1])
    layers[0].eval(), layers[1].load_state_dict(layers[0].state_dict())
    with emulate(Rule("*", "*_norm", gs.QLayerNormFormats.of(CAST))):  # formats that batch norm has not
        assert torch.equal(layers[0](X), layers[1].eval()(X).detach())


def test_instance_norm_keeps_the_mean_of_its_examples_statistics():
    layers = [nn.InstanceNorm1d(6, affine=True, track_running_stats=True) for _ in range(2)]
    each = [(torch.zeros(6), torch.ones(6)) for _ in X]
    with emulate(Rule("*", "instance_norm", {"fwd": CAST, "bwd": "e5m3"})):
        found = layers[0](X)
    w, b = layers[1].weight, layers[1].bias
    wanted = [gs.qbatchnorm(x[None], *s, w, b, True, 0.1, 1e-5, CAST, "e5m3") for x, s in zip(X, each, strict=True)]
    assert torch.equal(found, torch.cat(wanted))
    for n, name in enumerate(("running_mean", "running_var")):
        assert torch.equal(getattr(layers[0], name), torch.stack([s[n] for s in each]).mean(0))
    layers[0].eval()
    with emulate(Rule("*", "*_norm", CAST)):
        stats = layers[0].running_mean, layers[0].running_var
        assert torch.equal(layers[0](X), gs.qbatchnorm(X, *stats, w, b, False, 0.1, 1e-5, CAST, CAST))
        with pytest.raises(ValueError, match="more than 1 spatial"):
            F.instance_norm(X[:, :, :1])
        with pytest.raises(RuntimeError):
            F.instance_norm(X, use_input_stats=False)
    with emulate(Rule("*", "re:(batch|instance)_norm", {"fwd": CAST})):
        found = F.instance_norm(X)
        assert torch.equal(found, gs.quantize(found, CAST))


def test_log_softmax_inside_losses_stays():
    target = torch.arange(8) % 6
    native, steps = F.cross_entropy(X[0].mT, target), gs.qlogsoftmax(X[0].mT, 1, CAST, CAST)
    with emulate(Rule("*", "log_softmax", CAST)):
        assert torch.equal(F.cross_entropy(X[0].mT, target), native)
        assert torch.equal(F.nll_loss(F.log_softmax(X[0].mT, 1), target), F.nll_loss(steps, target))


def test_formats_of_each_kind():
    softmax = gs.QSoftmaxFormats("e5m10", fwd_lse="e5m6", output_quant="e4m3")
    norm = gs.QLayerNormFormats(*["e5m6"] * 4, output_quant="e4m3")
    gelu = gs.QGELUFormats(output_quant="e4m3")
    config = Config.of([
        Rule("*", "softmax", softmax),
        Rule("*", "*_norm", norm),
        Rule("*", "gelu", gelu.to_dict()),
        Rule("*", "re:sigmoid|tanh", "e4m3"),
        Rule("*", "relu", {"fwd": "e5m2"}),
        Rule("*", "linear", ":e5m10"),
    ])  # fmt: skip
    read = Config.from_json(config.to_json())
    assert read == config and read.text == config.text and "e5m2" in str(config)
    for given in (config, read):
        with emulate(given):
            assert torch.equal(X.softmax(-1), gs.qsoftmax(X, -1, softmax))
            assert torch.equal(F.layer_norm(X, (8,), W), gs.qlayernorm(X, 8, W, spec=norm))
            assert torch.equal(F.rms_norm(X, (8,), W), gs.qrmsnorm(X, 8, W, spec=norm))
            assert torch.equal(F.gelu(X), gs.qgelu(X, gelu))
            assert torch.equal(X.sigmoid(), gs.qsigmoid(X, "e4m3"))
            assert torch.equal(X.relu(), gs.qrelu(X, "e5m2"))
            assert torch.equal(F.silu(X), F.silu(X.clone()))
    assert Rule("*", "softmax", CAST) == Rule("*", "softmax", gs.QSoftmaxFormats.of(CAST))
    assert hash(Rule("*", "relu", CAST)) == hash(Rule("*", "relu", MapFormats(CAST, CAST)))


def test_rules_that_mean_nothing():
    norm = gs.QLayerNormFormats.of(CAST)
    for kinds, formats in (("softmax", norm), ("re:softmax|gelu", norm), ("re:softmax|gelu", {"fwd_off": "e5m2"})):
        with pytest.raises(FormatError, match="allowed"):
            Rule("*", kinds, formats)
    with pytest.raises(FormatError):
        Rule("*", "softmax", "e4m3 : e5m10")
    with pytest.raises(FormatError):
        Rule("*", "softmax", gs.QAffineFormats.of(":e5m10"))
    with pytest.raises(gs.SpecError, match="fwd, bwd"):
        Rule("*", "relu", {"forward": "e5m2"})
    with pytest.raises(ConfigError, match="Name the operations"):
        Rule("*", "*", norm)
    with pytest.raises(ConfigError, match="softmax"):
        Rule("*", "softmx", "e5m2")


def test_paths():
    model = nn.Sequential(nn.LayerNorm(8), nn.Sequential(nn.LayerNorm(8), nn.Softmax(-1)))
    rules = [Rule("1.*", "layer_norm", CAST), Rule("*.1", "softmax", "e5m3")]
    with emulate(rules):
        found = model(X)
    w = model[1][0]
    inner = gs.qlayernorm(model[0](X), 8, w.weight, w.bias, spec=CAST)
    assert torch.equal(found, gs.qsoftmax(inner, -1, "e5m3"))


def test_softmax_inside_attention():
    q, k, v = torch.randn(3, 2, 5, 16)
    mask = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    for formats in (CAST, gs.QSoftmaxFormats("e5m10", fwd_lse="e5m6"), gs.QSoftmaxFormats.of("e5m4")):
        with emulate(Rule("*", "softmax", formats)):
            found = F.scaled_dot_product_attention(q, k, v, mask)
        scores = (q @ k.mT * 0.25).masked_fill(~mask, float("-inf"))
        weights = gs.qsoftmax(scores, -1, formats).nan_to_num(0.0)
        assert (found[:, 0] == 0).all() and torch.equal(found, weights @ v)
    nan = gs.QSoftmaxFormats("e5m10", fwd_lse="e5m6", masked_rows="nan")
    with emulate(Rule("*", "softmax", nan)):
        assert F.scaled_dot_product_attention(q, k, v, mask)[:, 0].isnan().all()
    with emulate(Rule("*", "layer_norm", CAST)):
        assert torch.equal(F.scaled_dot_product_attention(q, k, v), torch._C._nn.scaled_dot_product_attention(q, k, v))


def test_gates_inside_recurrent_networks():
    lstm, x = nn.LSTMCell(8, 3), X[0]
    h, c = torch.randn(2, 6, 3)
    rules = [Rule("*", "sigmoid", "e4m3"), Rule("*", "tanh", {"fwd": "e5m4"})]
    with emulate(rules):
        found = lstm(x, (h, c))
    gates = F.linear(h, lstm.weight_hh, lstm.bias_hh) + F.linear(x, lstm.weight_ih, lstm.bias_ih)
    i, f, g, o = gates.chunk(4, 1)
    i, f, o = (gs.qsigmoid(t, "e4m3") for t in (i, f, o))
    new = f * c + i * gs.qtanh(g, "e5m4")
    assert torch.equal(found[1], new) and torch.equal(found[0], o * gs.qtanh(new, "e5m4"))
    rnn = nn.RNN(8, 3, nonlinearity="relu")
    with emulate([Rule("*", "relu", "e5m2"), Rule("*", "rnn.*", ":e5m6")]):
        found = rnn(X)[0]
    assert torch.equal(found, gs.quantize(found.detach(), "e5m2"))
    with emulate([Rule("*", "relu", "e5m2/sr8")], seed=1, step=0):
        assert not torch.equal(rnn(X)[0], rnn(X)[0])


def test_random_roundings_leave_torchs_generator_alone():
    layer = nn.LayerNorm(64)
    x = torch.randn(3, 64)
    rules = [Rule("*", kind, "e5m2/sr8") for kind in ("layer_norm", "softmax", "tanh")]
    before = torch.get_rng_state()

    def run():
        return [layer(x), layer(x), x.softmax(-1), x.softmax(-1), x.tanh(), x.tanh()]

    with emulate(rules, seed=3, step=0):
        first = run()
    with emulate(rules, seed=3, step=0):
        again = run()
    with emulate(rules, seed=4, step=0):
        other = run()
    assert torch.equal(before, torch.get_rng_state())
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))
    assert not any(torch.equal(a, b) for a, b in zip(first[::2], first[1::2], strict=True))
    fixed = gs.QSoftmaxFormats(*["e5m2/sr8"] * 3, seed=5)
    with emulate(Rule("*", "softmax", fixed)):
        assert torch.equal(x.softmax(-1), gs.qsoftmax(x, -1, fixed))


class Call(nn.Module):
    """A call of a kind, as a model: each call of it is a step."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return NATIVE[self.kind](x)


@pytest.mark.parametrize("kind", **long_but({kind: kind for kind in CALLS}, "softmax", "layer_norm", "batch_norm"))
def test_random_roundings_in_compiled_code(kind):
    forget()
    model = Call(kind)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with emulate(Rule("*", kind, "e5m2/sr8"), seed=3, step=0):
        expected = [both(model) for _ in range(4)]
    with emulate(Rule("*", kind, "e5m2/sr8"), seed=3, step=0):
        for step, (out, grad) in enumerate(expected):
            found = both(compiled)
            assert torch.equal(found[0], out) and torch.equal(found[1], grad), step
    assert not torch.equal(expected[0][0], expected[1][0]) and not torch.equal(expected[0][1], expected[1][1])
    assert graphs() <= 2, "no graph for each step"


def test_random_roundings_of_attention_and_gates_in_compiled_code():
    rules = [Rule("*", "softmax", "e5m2/sr8"), Rule("*", "tanh", "e5m2/sr8"), Rule("*", "linear", ":bf16/sr")]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = F.scaled_dot_product_attention(self.first(x), x, x).tanh()
            return F.scaled_dot_product_attention(self.second(x), x, x).softmax(-1)

    forget()
    model = Model()
    with emulate(rules, seed=3, step=0):
        expected = [both(model) for _ in range(3)]
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with emulate(rules, seed=3, step=0):
        for out, grad in expected:
            found = both(compiled)
            assert torch.equal(found[0], out) and torch.equal(found[1], grad)
    assert graphs() <= 2


def test_formats_with_a_seed_keep_it():
    fixed = gs.QSoftmaxFormats(*["e5m2/sr8"] * 3, seed=5)
    call = torch.compile(lambda x: x.softmax(-1), backend="eager", fullgraph=True)
    with emulate(Rule("*", "softmax", fixed)):
        assert torch.equal(call(X), gs.qsoftmax(X, -1, fixed)) and torch.equal(X.softmax(-1), call(X))


@pytest.mark.parametrize("kind", **long_but({kind: kind for kind in CALLS}, "softmax", "layer_norm"))
def test_compiled(kind):
    torch._dynamo.reset()
    with emulate(Rule("*", kind, CAST)):
        expected = both(NATIVE[kind])
        compiled = torch.compile(NATIVE[kind], backend="aot_eager", fullgraph=True)
        assert all(map(torch.equal, both(compiled), expected))
    with emulate(":e5m6"):
        compiled = torch.compile(NATIVE[kind], backend="eager")
        assert all(map(torch.equal, both(compiled), both(NATIVE[kind])))


def test_integers_and_other_dtypes_are_pytorchs():
    whole = torch.arange(6)
    native = whole.sigmoid()
    with emulate([Rule("*", kind, CAST) for kind in ROW_KINDS]):
        found = whole.sigmoid()
        assert torch.equal(found, native) and torch.equal(whole.relu(), whole)
        assert torch.equal(torch.softmax(whole, 0, torch.float32), gs.qsoftmax(whole.float(), 0, CAST))
        narrow = X.bfloat16()
        assert narrow.softmax(-1).dtype is torch.bfloat16
        assert torch.equal(narrow.tanh(), gs.qtanh(narrow, CAST, CAST))
