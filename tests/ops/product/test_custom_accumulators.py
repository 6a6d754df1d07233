"""Accumulators that users write: the same bits as ours where the step says the same, everywhere a spec goes."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
import gemmsim.nn as qnn
from gemmsim.arithmetic import GemmSpec, SpecError, UnsupportedSpec, constructors
from gemmsim.arithmetic.accumulator import forget
from gemmsim.formats import parse_cast


class Register(gs.acc.Custom):
    """s = R(s + a * b), as the sequential accumulator; exact products of narrow operands."""

    fmt: str = "bf16"

    register = "bf16"

    def step(self, s, a, b, k):
        return gs.quantize(s + a * b, self.fmt)


class Wrapping(gs.acc.Custom):
    """An integer register that wraps."""

    bits: int
    signed: bool = True

    numbers = "int64"

    def step(self, s, a, b, k):
        half = 1 << (self.bits - 1) if self.signed else 0
        return (s + a * b + half) % (1 << self.bits) - half


class Two(gs.acc.Custom):
    """Two registers, for even and odd k; a counts twice."""

    scale: float = 2.0
    last: int | None = None

    def start(self, zeros):
        return zeros, zeros

    def step(self, s, a, b, k):
        new = s[k % 2] + self.scale * a * a.abs() * b
        return (new, s[1]) if k % 2 == 0 else (s[0], new)

    def finish(self, s):
        return s[0] + s[1]


NAMES = {"test_register": Register, "test_wrapping": Wrapping, "test_two": Two}


@pytest.fixture(scope="module", autouse=True)
def defined():
    """Other tests walk through all constructors: ours are there while these tests run."""
    before = set(constructors())
    for name, one in NAMES.items():
        gs.acc.define(name)(one)
    yield
    for name in set(constructors()) - before:
        del constructors()[name]
    forget()


def two(a, b):
    """The sum of ``Two``."""
    terms = (2.0 * a.double() * a.double().abs()).unsqueeze(-1) * b.double().unsqueeze(-3)
    even, odd = terms[..., ::2, :].sum(-2), terms[..., 1::2, :].sum(-2)
    return even + odd


ORDERS = [
    "{}",
    "chunked(4, {})",
    "chunked(4, {}, fp32)",
    "promote({}, 3)",
    "splitk(3, {}, e5m10)",
    "pairwise({}, 2)",
    "interleaved(3, {})",
    "interleaved(5, {}, pairwise)",
    "shuffled({}, 7)",
    "chunked(6, pairwise({}))",
]


@pytest.mark.parametrize("k", [0, 1, 13])
@pytest.mark.parametrize("order", ORDERS)
def test_has_the_bits_of_the_accumulator_that_it_describes(order, k):
    generator = torch.Generator().manual_seed(k)
    a, b = torch.randn(3, k, generator=generator) * 8, torch.randn(k, 5, generator=generator)
    got = gs.qmatmul(a, b, f"e4m3 : {order.format('test_register(bf16)')} -> bf16")
    assert_bitwise_equal(got, gs.qmatmul(a, b, f"e4m3 : {order.format('bf16')} -> bf16"))
    if k:
        assert gs.last_backend().backend != "stepwise"


@pytest.mark.parametrize("signed", [True, False])
def test_computes_with_integers(signed):
    a, b = torch.randint(-128, 128, (2, 4, 40)).float(), torch.randint(0, 128, (2, 40, 6)).float()
    a = a if signed else a.abs()
    want = gs.qmatmul(a, b, f"fixed(9,0) : int(13, overflow=wrap, signed={str(signed).lower()})")
    assert_bitwise_equal(gs.qmatmul(a, b, Wrapping(13, signed)), want)
    assert gs.last_backend().backend == "stepwise"


def test_reads_and_prints_as_ours_do():
    spec = GemmSpec.parse("e4m3 : chunked(4, test_two(0.25, last=3), fp32) -> bf16")
    assert spec.accumulator.inner == Two(0.25, last=3) != Two(0.25)
    assert GemmSpec.parse(spec.key) == spec == GemmSpec.from_json(spec.to_json())
    assert str(Two()) == "test_two()" and hash(Two()) == hash(Two(2.0))
    assert pickle.loads(pickle.dumps(Two(1e-30))) == Two(1e-30) == Two.parse(str(Two(1e-30)))
    assert copy.deepcopy(spec) == spec and not spec.is_stochastic
    assert "Two registers, for even and odd k" in gs.explain(spec) and "stepwise: yes" in gs.explain(spec)


def test_gradients_take_the_operands_in_their_own_roles():
    x, w = torch.randn(4, 7, requires_grad=True), torch.randn(3, 7, requires_grad=True)
    g = torch.randn(4, 3)
    y = gs.qlinear(x, w, None, Two())
    assert_bitwise_equal(y, two(x.detach(), w.detach().T).float())
    y.backward(g)
    assert_bitwise_equal(x.grad, two(g, w.detach()).float())
    assert_bitwise_equal(w.grad, two(x.detach().T, g).T.float())  # formats for (input, weight): the gradient is the b


def test_layers_vmap_compile_and_batches():
    a, b = torch.randn(2, 3, 4, 5), torch.randn(2, 1, 5, 6)
    want = two(a, b).float()
    assert_bitwise_equal(gs.qmatmul(a, b, Two()), want)
    assert_bitwise_equal(gs.qmatmul(a.mT.contiguous().mT, b, Two()), want)
    spec = ":test_two()"
    assert_bitwise_equal(torch.vmap(lambda x, y: gs.qmatmul(x, y, spec))(a, b), want)
    compiled = torch.compile(lambda x, y: gs.qmatmul(x, y, spec), fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(a, b), want)
    conv = qnn.QConv2d(2, 4, 3, padding=1, spec="e4m3 : test_register(bf16)", bias=False)
    plain = qnn.QConv2d(2, 4, 3, padding=1, spec="e4m3 : bf16", bias=False)
    plain.load_state_dict(conv.state_dict())
    x = torch.randn(2, 2, 5, 5)
    assert_bitwise_equal(conv(x), plain(x))


def test_under_acceleration_says_why_it_is_not_native():
    with gs.cublas_acceleration(True):
        gs.qmatmul(torch.ones(2, 2), torch.ones(2, 2), Two())
    assert "such an accumulator" in gs.last_backend().plan


def test_a_class_may_be_defined_again():
    def make(factor):
        @gs.acc.define("test_again")
        class Again(gs.acc.Custom):
            def step(self, s, a, b, k):
                return s + factor * a * b

        return Again

    one = torch.ones(1, 1)
    results = []
    for factor in (2.0, 3.0):
        make(factor)
        results.append(gs.qmatmul(one, one, ":test_again()").item())
    assert results == [2.0, 3.0]


def test_operands_and_register_are_the_class_own():
    @gs.acc.define("test_operands")
    class Operands(gs.acc.Custom):
        operands = ("e4m3", "e5m2")
        register = "e5m2"

        def step(self, s, a, b, k):
            return s + a * b

    a, b = torch.randn(3, 4), torch.randn(4, 3)
    want = gs.qmatmul(a, b, "e4m3 * e5m2 : exact(e5m2)")
    assert_bitwise_equal(gs.qmatmul(a, b, Operands()), want)
    assert GemmSpec.of(Operands()).cast_b == parse_cast("e5m2")


def _define(name="test_bad", **members):
    members.setdefault("step", lambda self, s, a, b, k: s)
    return gs.acc.define(name)(type("Bad", (gs.acc.Custom,), members))


@pytest.mark.parametrize(
    "act, words",
    [
        (lambda: _define("exact"), "'exact', which is Exact"),
        (lambda: _define("Bad Name"), "a word of a-z"),
        (lambda: _define(numbers="int8"), "'float64', 'float32', 'int64'"),
        (lambda: _define(register="e99"), "e99"),
        (lambda: _define(__annotations__={"x": list}), "int, float, bool, str, Cast"),
        (lambda: gs.acc.define("test_bad")(int), "subclass of gemmsim.acc.Custom"),
        (lambda: gs.acc.define("test_bad")(type("Bad", (gs.acc.Custom,), {})), "method step"),
        (lambda: Two("x"), "a number other than NaN"),
        (lambda: GemmSpec.parse(":test_two(1, 2, 3)"), "too many"),
        (lambda: GemmSpec(product="fp16", accumulator=Two()), "its step multiplies"),
        (lambda: GemmSpec.parse(":test_two(), arithmetic=fp32"), "a Python step"),
        (lambda: gs.acc.chunked(4, Two()), "Give outer"),
    ],
)
def test_says_what_is_wrong(act, words):
    with pytest.raises(SpecError, match=words.replace("(", r"\(")):
        act()


def test_refuses_what_has_no_meaning():
    a, b = torch.randn(2, 2), torch.randn(2, 2)
    with pytest.raises(SpecError, match="not integers"):
        gs.qmatmul(a, b, Wrapping(8))
    with pytest.raises(UnsupportedSpec, match="random rounding"):
        gs.qmatmul(a, b, gs.acc.chunked(4, Two(), "bf16/sr"))
    with pytest.raises(UnsupportedSpec, match="a choice of accumulators|palette"):
        gs.qmatmul(a, b, gs.acc.palette(Two(), "bf16"), select=torch.zeros(2, 2, dtype=torch.uint8))

    class Wrong(gs.acc.Custom):
        def step(self, s, a, b, k):
            return a

    wrong = gs.acc.define("test_wrong")(Wrong)
    with pytest.raises(SpecError, match=r"output's shape \(2, 3\)"):
        gs.qmatmul(a, torch.randn(2, 3), wrong())


OWN = [
    *(order.format("test_register(bf16)") for order in ORDERS),
    *(
        "test_two(0.5)",
        "swapped(test_two())",
        "chunked(4, test_two(), fp32)",
        "splitk(3, swapped(test_two(3.0)), bf16)",
    ),
    *("test_wrapping(7)", "test_wrapping(9, signed=false)"),
]


@pytest.mark.parametrize("own", OWN)
def test_reference_and_trace_take_its_steps_one_element_at_a_time(own):
    generator = torch.Generator().manual_seed(7)
    a, b = torch.randn(2, 13, generator=generator) * 8, torch.randn(13, 3, generator=generator)
    if "wrapping" in own:
        a, b = (a.round(), (b * 20).round()) if "signed" not in own else (a.round().abs(), (b * 20).round().abs())
    spec = f"{'fixed(9,0)' if 'wrapping' in own else 'e4m3'} : {own} -> bf16"
    got = gs.qmatmul(a, b, spec)
    want = gs.reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(spec))
    assert_bitwise_equal(got, torch.tensor(want))
    story = gs.trace(a, b, spec, at=(1, 2))
    assert story.value == got[1, 2].item()
    assert sum(step.kind == "step" for step in story.steps) == 13


def test_trace_shows_states_and_their_rounding_and_refuses_what_the_numbers_do_not_hold():
    story = gs.trace([3.0, 1.0], [1.5, -2.0], ":test_two(0.5)")
    lines = [str(step) for step in story.steps if step.kind == "step"]
    assert "Two.step: s = (0.0, 0.0), a = 3.0, b = 1.5 = 6.75" in lines[0]
    assert "Two.step: s = (6.75, 0.0), a = 1.0, b = -2.0" in lines[1] and story.value == 5.75
    rounded = [step for step in gs.trace([1.0 + 2**-9], [1.0], ":test_register(fp32)").steps if step.kind == "register"]
    assert len(rounded) == 1 and rounded[0].is_rounded and rounded[0].value == 1.0
    assert math.isnan(gs.trace([math.inf], [0.0], ":test_two()").value)
    with pytest.raises(ValueError, match="a has 0.5; allowed: integers"):
        gs.trace([0.5], [1.0], ":test_wrapping(8)")
    with pytest.raises(SpecError, match=r"integers below 2\*\*63"):
        gs.trace([2.0**64], [1.0], ":test_wrapping(8)")
