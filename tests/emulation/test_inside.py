"""Contexts that compiled code opens: everything that a context takes, made outside, with eager's bits; errors as in eager."""

from __future__ import annotations

import collections

import pytest
import torch
from emulation.compiling import NET, X, forget, graphs
from support.accumulators import CASES

import gemmsim as gs
from gemmsim.emulation import Config, ConfigError, Rule, dynamo_configs, emulate

SPEC = "e4m3 : e5m4"
OUTSIDE = {
    "nothing": None,
    "no rules": [],
    "config": Config.of(SPEC),
    "pairs": [("0", ":e5m4"), ("2", None)],
    "tuples": (("0", ":e5m4"), ("2", ":bf16")),
    "rule": Rule("*", "linear", ":e5m3"),
    "rules and pairs": [Rule("0", "linear", ":e5m3"), ("2", gs.GemmSpec.parse(SPEC)), {"formats": ":bf16"}],
    "random": [("0", ":e5m6/sr"), Rule("2", "*", gs.acc.chunked(4, "e5m3/sr"))],
    "rows": [Rule("*", "relu", {"fwd": "e5m2", "bwd": "e4m3"}), ("*", ":bf16")],
    "formats": gs.QAffineFormats(fprop=":e5m3", wgrad=SPEC, weight_quant="e5m2"),
    "functions": gs.QAffineFormats(fprop=":e5m3", input_quant=torch.round),
    "recipe": gs.recipes.hopper_fp8(),
    "pair with a recipe": [("*", gs.recipes.hopper_fp8())],
    "spec": gs.GemmSpec.parse(SPEC),
    "accumulator": gs.acc.chunked(2, "e5m3"),
    "format": gs.formats.parse("e5m3"),
    "cast": gs.formats.parse_cast("e5m3/rz"),
    "roles": {"fprop": ":e5m3", "dgrad": gs.acc.chunked(2, "e5m10"), "wgrad": None},
    "ordered roles": collections.OrderedDict(fprop=SPEC),
    "dictionary": Config.of([("0", SPEC), ("2", None)]).to_dict(),
}
pytestmark = pytest.mark.filterwarnings("ignore:Using `torch.compile", "ignore:Dynamo detected a call")


@pytest.fixture(autouse=True)
def fresh():
    forget()


def run(function):
    out = function(X)
    return [out, *torch.autograd.grad(out.square().sum(), list(NET.parameters()))]


def equal(ours, theirs):
    return all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def opened(config):
    def inside_(x):
        with emulate(config, seed=3, step=0):
            return NET(x)

    return inside_


@pytest.mark.parametrize("config", OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_made_outside_has_eagers_bits(config):
    function = opened(config)
    want = run(function)
    assert equal(want, run(NET)) == (not config)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert equal(run(compiled), want) and equal(run(compiled), want) and graphs() == 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_accumulator_is_known_by_its_fields(case):
    spec = gs.GemmSpec.of(case.text)
    for value in (spec, spec.accumulator, *spec.casts(), *(cast.format for cast in spec.casts())):
        assert dynamo_configs._number(value) == id(value)


def test_arguments_attributes_and_lists_made_inside():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.formats = NET, gs.QAffineFormats(fprop=":e5m3")

        def forward(self, x, first):
            with emulate([("0", first), ("*", self.formats)]):
                return self.net(x)

    model = Model()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for first in (":e5m4", gs.acc.chunked(2, "e5m3"), None):
        assert torch.equal(compiled(X, first), model(X, first))
    assert graphs() == 3


def test_what_changes_outside_is_noticed():
    narrow, wide = Rule("*", "linear", ":e5m3"), Rule("*", "linear", ":e5m6")
    rules = [narrow]
    function = opened(rules)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    first = compiled(X)
    for change in (lambda: rules.__setitem__(0, wide), lambda: rules.insert(0, ("0", None)), lambda: rules.clear()):
        change()
        assert torch.equal(compiled(X), function(X)) and not torch.equal(compiled(X), first)
    rules.append(narrow)
    assert torch.equal(compiled(X), first) and graphs() == 4


class Mapping(collections.UserDict):
    """One whose content the compiler does not follow."""


MADE_INSIDE = {
    "rule": (lambda: Rule("*", "linear", ":e5m3"), "Rule inside compiled code"),
    "rule in a list": (lambda: [("0", ":e5m3"), Rule("*", "softmax", "bf16")], "Rule inside compiled code"),
    "config": (lambda: Config([]), "Config inside compiled code"),
    "config of": (lambda: Config.of([("*", ":e5m3")]), "Config inside compiled code"),
    "config from JSON": (lambda: Config.from_json('[["*", ":e5m3"]]'), "Config inside compiled code"),
    "formats": (
        lambda: gs.QAffineFormats(fprop=":e5m3"),
        "a (GemmSpec|QAffineFormats) that was made inside compiled code",
    ),
    "formats in a list": (
        lambda: [("*", gs.QAffineFormats(fprop=":e5m3"))],
        "a (GemmSpec|QAffineFormats) that was made inside compiled code",
    ),
    # Texts that nothing else names: a spec that was parsed before is known.
    "spec": (lambda: gs.GemmSpec.parse("e3m3 : e6m4"), "a GemmSpec that was made inside compiled code"),
    "formats of a new spec": (
        lambda: gs.QAffineFormats.of("e3m2 : e6m3"),
        "a GemmSpec that was made inside compiled code",
    ),
    "accumulator": (lambda: gs.acc.chunked(16, "e5m3"), "a Chunked that was made inside compiled code"),
    "accumulator in a list": (
        lambda: [("0", gs.acc.kahan("e5m3")), ("*", None)],
        "a Kahan that was made inside compiled code",
    ),
    "deque": (lambda: collections.deque([("*", ":e5m3")]), "a config with a deque inside compiled code"),
}


@pytest.mark.parametrize(("make", "words"), MADE_INSIDE.values(), ids=MADE_INSIDE)
def test_what_is_made_inside_says_what_to_do(make, words):
    def function(x):
        with emulate(make()):
            return NET(x)

    with pytest.raises(ConfigError, match=f"{words}; allowed: .*created outside.\n  Create it outside"):
        torch.compile(function, fullgraph=True, backend="aot_eager")(X)
    broken = torch.compile(function, backend="aot_eager")(X)
    assert torch.equal(broken, function(X)), "a graph break, and eager code"


WRONG = {
    "type": 3,
    "spec": ":bf17",
    "spec in a pair": [("0", ":bf17")],
    "three of a pair": [("0", ":bf16", 1)],
    "role": {"forward": ":bf16"},
    "pattern": [("9.*", ":bf16")],
    "broken pattern": [("re:(", ":bf16")],
    "tensor": X,
    "module": NET,
    "user's mapping": Mapping(forward=":bf16"),
    "no meaning for a call": gs.QAffineFormats(fprop=":e5m10", input_quant="e4m3"),
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("config", WRONG.values(), ids=WRONG)
def test_errors_have_eagers_type(config, fullgraph):
    def function(x):
        with emulate(config):
            return torch.cdist(NET(x), NET(x))

    with pytest.raises((gs.SpecError, gs.FormatError, gs.UnsupportedSpec)) as eager:
        with emulate(config):
            x = torch.zeros(30, 8)
            torch.cdist(NET(x), NET(x))
    with pytest.raises(eager.type) as found:
        torch.compile(function, fullgraph=fullgraph, backend="aot_eager")(torch.zeros(30, 8))
    assert found.type is eager.type
    if not isinstance(config, (torch.Tensor, torch.nn.Module, Mapping)):
        assert str(found.value) == str(eager.value)


def test_other_arguments_are_refused_as_in_eager_code():
    for options, error in (({"seed": -1}, gs.SeedError), ({"root": 3}, ConfigError)):

        def function(x, options=options):
            with emulate(SPEC, **options):
                return NET(x)

        with pytest.raises(error) as found:
            torch.compile(function, fullgraph=True, backend="aot_eager")(X)
        assert found.type is error


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict):
    class Model(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.net, self.config = NET, config

        def forward(self, x):
            with emulate(self.config):
                return self.net(x)

    model = Model([Rule("0", "linear", ":e5m3"), ("*", gs.recipes.hopper_fp8())])
    assert torch.equal(torch.export.export(model, (X,), strict=strict).module()(X), model(X))
    with pytest.raises(ConfigError, match="'9'"):
        torch.export.export(Model([("9", SPEC)]), (X,), strict=strict)
