"""Converted models: the bits of ``emulate``, nothing else changed, undone, copied, saved."""

import copy
import io
import pickle

import pytest
import torch

import gemmsim as gs
from gemmsim.emulation import ConfigError, arithmetic_of, convert, emulate, from_pretrained, load, save, undo


class Block(torch.nn.Module):
    """A module with a product that no module stands for."""

    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)
        self.mix = torch.nn.Parameter(torch.eye(width))

    def forward(self, x, scale=1.0):
        return torch.relu(self.inner(x)) @ self.mix * scale


def model():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), Block(6), torch.nn.Linear(6, 4))


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
CONFIGS = {
    "one rule": ":e5m4",
    "paths": [("1*", ":e5m4"), ("2", "e4m3 : e5m7")],
    "random": ":e5m5/sr",
}


def steps(net, n=2):
    """Outputs and gradients of n steps."""
    found = []
    for _ in range(n):
        out = net(X)
        found += [out, *torch.autograd.grad(out.square().sum(), list(net.parameters()))]
    return found


def equal(ours, theirs):
    return all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_bits_are_those_of_emulate(config):
    net = model()
    native = steps(net)
    with emulate(config, seed=7, step=0):
        want = steps(net)
    assert convert(net, config, seed=7) is net
    assert equal(steps(net), want)
    assert equal(steps(undo(net)), native)
    compiled = torch.compile(convert(net, config, seed=7), fullgraph=True, backend="aot_eager")
    torch._dynamo.reset()
    assert equal(steps(compiled), want)


def test_nothing_else_changes():
    net = model()
    before = (
        repr(net),
        [*net.state_dict()],
        [id(p) for p in net.parameters()],
        [type(m).__name__ for m in net.modules()],
    )
    convert(net, ":e5m4")
    after = (
        repr(net),
        [*net.state_dict()],
        [id(p) for p in net.parameters()],
        [type(m).__name__ for m in net.modules()],
    )
    assert before == after
    assert all(isinstance(m, torch.nn.Linear) for m in (net[0], net[1].inner, net[2]))
    undo(net)
    assert type(net[0]) is torch.nn.Linear and arithmetic_of(net) is None and "_gemmsim" not in net.__dict__
    assert not torch.overrides._get_current_function_mode_stack()


def test_parts_can_be_called_by_themselves():
    net = convert(model(), [("1.inner", ":e5m4")])
    inner = net[1].inner
    hidden = torch.randn(3, 6)
    assert torch.equal(inner(hidden), gs.qlinear(hidden, inner.weight, inner.bias, ":e5m4"))
    assert torch.equal(net[0](X), torch.nn.functional.linear(X, net[0].weight, net[0].bias))


@pytest.mark.parametrize("way", ["copy", "pickle", "torch.save"])
def test_copies_compute_the_same(way):
    net = convert(model(), ":e5m5/sr", seed=7)
    if way == "copy":
        again = copy.deepcopy(net)
    elif way == "pickle":
        again = pickle.loads(pickle.dumps(net))
    else:
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
    assert equal(steps(again), steps(net))
    undo(again)
    assert arithmetic_of(net) is not None and not equal(steps(again), steps(net))


def test_converting_again_and_parts_of_their_own():
    net = convert(model(), ":e5m4")
    convert(net, ":e5m3")
    with emulate(":e5m3"):
        want = steps(undo(model()))
    assert equal(steps(net), want)
    whole = model()
    convert(whole[1], ":e5m2")
    convert(whole, ":e5m7")
    first = gs.qlinear(X, whole[0].weight, whole[0].bias, ":e5m7")
    block = gs.qlinear(first, whole[1].inner.weight, whole[1].inner.bias, ":e5m2")
    block = gs.qmatmul(torch.relu(block), whole[1].mix, ":e5m2")
    assert torch.equal(whole(X), gs.qlinear(block, whole[2].weight, whole[2].bias, ":e5m7"))


def test_the_models_own_arithmetic_holds_inside_a_context():
    net = convert(model(), ":e5m4")
    want = net(X)
    with emulate(":e5m2"):
        assert torch.equal(net(X), want)


def test_checkpoints_and_backward_are_the_models():
    net = convert(model(), [("1.*", ":e5m4"), ("2", ":e5m5/sr")], seed=3)
    x = X.clone().requires_grad_()
    want = torch.autograd.grad(net(x).square().sum(), [x, *net.parameters()])
    net = convert(undo(net), [("1.*", ":e5m4"), ("2", ":e5m5/sr")], seed=3)
    out = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
    assert equal(torch.autograd.grad(out.square().sum(), [x, *net.parameters()]), want)


def test_saved_beside_the_weights(tmp_path):
    net = convert(model(), [("1*", "e4m3 : e5m10"), ("2", {"fprop": ":e5m4"})], seed=9)
    path = save(net, tmp_path)
    assert path.name == "gemmsim.json" and [p.name for p in tmp_path.iterdir()] == ["gemmsim.json"]
    again = load(model(), tmp_path)
    assert arithmetic_of(again).config == arithmetic_of(net).config and arithmetic_of(again).seed == 9
    assert equal(steps(again), steps(net))

    class Hub:
        @classmethod
        def from_pretrained(cls, folder, width=8):
            assert str(folder) == str(tmp_path) and width == 8
            return model()

    assert equal(steps(from_pretrained(Hub, tmp_path, width=8)), steps(load(model(), tmp_path)))


def test_bad_input(tmp_path):
    with pytest.raises(ConfigError, match="'9'"):
        convert(model(), [("9", ":e5m4")])
    with pytest.raises(ConfigError, match="module"):
        convert(torch.relu, ":e5m4")
    with pytest.raises(ConfigError, match="not converted"):
        save(model(), tmp_path)
    with pytest.raises(ConfigError, match="gemmsim.json"):
        load(model(), tmp_path)
    (tmp_path / "gemmsim.json").write_text('{"version": 99, "seed": 0, "rules": []}')
    with pytest.raises(ConfigError, match="99"):
        load(model(), tmp_path)
    (tmp_path / "gemmsim.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match=r"gemmsim\.json"):
        load(model(), tmp_path)
