"""A library in the place of a spec: plans by shapes and dtypes, unknown products named, evidence in audits."""

from __future__ import annotations

import gc
import pickle
from functools import partial

import pytest
import torch
from emulation.agreement import same
from torch import nn

import gemmsim as gs
from gemmsim.emulation import Config, ConfigError, Rule
from gemmsim.emulation.library_plans import LibraryFormats
from gemmsim.libraries import Call, Header, UnknownPlan, make_table
from gemmsim.libraries import Config as Chosen

ONE_CHAIN, THREADS = Chosen(66, SPLITK_NUM=1, STAGES_ID=35), Chosen(11, CUSTOM_OPTION=0)
BF16, FP32 = torch.bfloat16, torch.float32
#: (M, N, K) -> configuration, of the products of ``model()`` on four rows and of their gradients.
CHOSEN = {
    **{(4, 48, 32): THREADS, (4, 16, 48): ONE_CHAIN},
    **{(4, 32, 48): ONE_CHAIN, (48, 32, 4): THREADS, (4, 48, 16): ONE_CHAIN, (16, 48, 4): ONE_CHAIN},
}


def table(chosen=None, out="bf16", a="bf16"):
    rows = [(Call(*shape, a, a, out, False), config) for shape, config in (chosen or CHOSEN).items()]
    return make_table(Header("h100", "13.1.1", 32 << 20), rows)


def library(chosen=None, **more):
    return gs.libraries.cublaslt("h100", version="13.1", table=table(chosen, **more))


LIBRARY = library()


def model(**more):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 48, bias=False, **more), nn.Tanh(), nn.Linear(48, 16, bias=False, **more))


def inputs(*shape, dtype=BF16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def test_each_product_is_that_of_its_plan():
    net, x = model(dtype=BF16), inputs(4, 32).requires_grad_()
    with gs.emulate(LIBRARY), gs.audit() as report:
        out = net(x)
        out.sum().backward()
    spec = lambda *shape: LIBRARY.spec(*shape, "bf16")  # noqa: E731
    first, _, last = net
    hidden = gs.qmatmul(x, first.weight.mT, spec(4, 48, 32)).detach()
    inner = hidden.tanh().detach()
    same(out, gs.qmatmul(inner, last.weight.mT, spec(4, 16, 48)))
    up = torch.ones(4, 16, dtype=BF16)
    same(last.weight.grad, gs.qmatmul(up.mT, inner, spec(16, 48, 4)).detach())
    below = torch.ops.aten.tanh_backward(gs.qmatmul(up, last.weight, spec(4, 48, 16)).detach(), inner)
    same(first.weight.grad, gs.qmatmul(below.mT, x, spec(48, 32, 4)).detach())
    same(x.grad, gs.qmatmul(below, first.weight, spec(4, 32, 48)).detach())
    found = {(one.module, one.role): (one.family, one.evidence, one.source, one.spec) for one in report}
    shapes = {(one.module, one.role): (one.shape[1], one.shape[3], one.shape[2]) for one in report}
    assert set(shapes.values()) == set(CHOSEN) and len(found) == 6
    for key, shape in shapes.items():
        plan = LIBRARY.plan(*shape, "bf16")
        assert found[key] == (plan.family, plan.evidence, "table", str(plan.spec))
    assert {one.family for one in report} == {"nvjet", "gemmsn"}
    assert report.evidence == {"silicon": 6} and len(report.planned) == 6


def test_reports_say_it():
    with gs.emulate(LIBRARY, unknown="chain"), gs.audit(values=True) as report:
        model(dtype=BF16)(inputs(4, 32))
        inputs(5, 7) @ inputs(7, 3)
    text = str(report)
    assert "family  evidence" in text and "gemmsn" in text
    assert "Chosen by a library: 3 products: 2 silicon, 1 assumed." in text
    again = gs.emulation.Report.from_dict(report.to_dict())
    assert again.records == report.records and again.evidence == {"silicon": 2, "assumed": 1}
    assert "assumed" in report._repr_html_()
    with gs.emulate(":e6m5"), gs.audit() as plain:
        inputs(5, 7) @ inputs(7, 3)
    assert "family" not in str(plain) and "family" not in plain.to_dict()["records"][0] and plain.evidence == {}


def test_a_shape_that_the_table_lacks_names_the_module():
    net = nn.Sequential(nn.Sequential(model(dtype=BF16)), nn.ReLU())
    with gs.emulate(LIBRARY), pytest.raises(UnknownPlan, match=r"linear of module '0\.0\.0'") as caught:
        net(inputs(5, 32))
    assert "5 x 48 x 32 in bf16" in caught.value.asked and "unknown='chain'" in caught.value.do
    assert "nvjet" in caught.value.known
    rules = [("0.0.2", LIBRARY), ("*", None)]
    with gs.emulate(rules), pytest.raises(UnknownPlan, match=r"linear of module '0\.0\.2': 5 x 16 x 48"):
        net(inputs(5, 32))


def test_an_unknown_gradient_is_an_error_where_it_is_computed():
    lacking = library({shape: config for shape, config in CHOSEN.items() if shape != (48, 32, 4)})
    net, x = model(dtype=BF16), inputs(4, 32)
    with gs.emulate(LIBRARY):
        want = net(x)
    for context in (gs.emulate(lacking), gs.emulate([("*", lacking)], root=net)):
        with context:
            out = net(x)
        same(out, want)
        with pytest.raises(UnknownPlan, match=r"in wgrad of linear of module '0': 48 x 32 x 4 in bf16"):
            out.sum().backward()
    first = net[0].weight.requires_grad_(False)
    with gs.emulate(lacking):
        net(x).sum().backward()
    assert first.grad is None and net[2].weight.grad is not None
    with gs.emulate(lacking, unknown="chain"), gs.audit() as report:
        first.requires_grad_()
        net(x).sum().backward()
    assert [(one.role, one.shape[1:]) for one in report if one.source == "assumed"] == [("wgrad", (48, 4, 32))]


def test_rules_for_modules():
    net, x = model(dtype=BF16), inputs(4, 32)
    with gs.emulate([("2", None), ("*", LIBRARY)]), gs.audit() as report:
        net(x)
    assert [(one.module, one.family, one.spec == "native") for one in report] == [
        ("0", "gemmsn", False),
        ("2", "", True),
    ]
    with gs.emulate([Rule("2", "linear", "bf16 : e6m5"), Rule(spec=LIBRARY)]), gs.audit() as report:
        net(x)
    assert [one.spec for one in report][1] == "e8m7 : e6m5"
    assert str(LIBRARY) in str(Config.of(LIBRARY))


def test_autocast_comes_first():
    net, x = model(), inputs(4, 32, dtype=FP32)
    with gs.emulate(LIBRARY), torch.autocast("cpu", BF16):
        out = net(x)
    with gs.emulate(LIBRARY):
        want = net.to(BF16)(x.to(BF16))
    assert out.dtype == BF16
    same(out, want)


UNKNOWN = {
    "linear": lambda: nn.functional.linear(inputs(4, 32, dtype=FP32), inputs(48, 32, dtype=FP32)),
    "matmul": lambda: inputs(4, 32, dtype=torch.float64) @ inputs(32, 48, dtype=torch.float64),
    "bmm": lambda: torch.bmm(inputs(3, 4, 32), inputs(3, 32, 48)),
    "baddbmm": lambda: torch.baddbmm(inputs(3, 4, 48), inputs(3, 4, 32), inputs(3, 32, 48)),
    "sdpa.qk": lambda: nn.functional.scaled_dot_product_attention(*[inputs(2, 4, 8)] * 3),
    "conv2d": lambda: torch.conv2d(inputs(1, 4, 8, 8), inputs(4, 4, 3, 3)),
    "cdist": lambda: torch.cdist(inputs(30, 8, dtype=FP32), inputs(30, 8, dtype=FP32)),
    "bilinear": lambda: nn.functional.bilinear(inputs(4, 8), inputs(4, 8), inputs(5, 8, 8)),
    "grouped_mm": lambda: torch._grouped_mm(inputs(2, 8, 16), inputs(2, 16, 8)),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_products_that_no_library_is_asked_for(kind):
    call = UNKNOWN[kind]
    with gs.emulate(LIBRARY), pytest.raises(UnknownPlan, match=f"in .*{kind}.*: ") as caught:
        call()
    assert "unknown='chain'" in str(caught.value)
    with gs.emulate(LIBRARY, unknown="chain"), gs.audit() as report:
        found = call()
    assert found.isfinite().all() and {one.source for one in report} == {"assumed"}
    assert {one.evidence for one in report} == {"unverified"}


def test_one_chain_is_the_librarys_instruction():
    a, b = inputs(3, 40, 32), inputs(3, 32, 24)
    with gs.emulate(LIBRARY, unknown="chain"):
        found, wide = torch.bmm(a, b), torch.bmm(a.float(), b.float())
    same(found, gs.qmatmul(a, b, "bf16 : hw(hopper, wgmma, bf16) -> bf16"))
    same(wide, gs.qmatmul(a.float(), b.float(), ":fp32"))


def test_a_batch_by_a_matrix_is_one_product():
    """As PyTorch multiplies it: its rows are those of one matrix."""
    a, b = inputs(2, 2, 32), inputs(32, 48).requires_grad_()
    chosen = {(4, 48, 32): THREADS, (32, 48, 4): THREADS}
    flat = gs.qmatmul(a.reshape(4, 32), b, library(chosen).spec(4, 48, 32, "bf16"))
    with gs.emulate(library(chosen)), gs.audit() as report:
        found = a @ b
        found.sum().backward()
    same(found, flat.reshape(2, 2, 48))
    assert [one.shape for one in report] == [(1, 4, 32, 48), (1, 32, 4, 48)]
    with gs.emulate(library(chosen)), pytest.raises(UnknownPlan, match="a batch of 2"):
        a.mT @ inputs(2, 48)


def test_examples_of_vmap_are_a_batch():
    a, b = inputs(3, 4, 32), inputs(32, 48)
    call = torch.vmap(lambda x: x @ b)
    with gs.emulate(LIBRARY), pytest.raises(UnknownPlan, match="a batch of 3"):
        call(a)
    with gs.emulate(LIBRARY, unknown="chain"):
        same(call(a), gs.qmatmul(a, b, "bf16 : hw(hopper, wgmma, bf16) -> bf16"))
    with gs.emulate(LIBRARY):  # one example alone, seen through a transform
        loss = lambda w: (a[0] @ w).float().sum()  # noqa: E731
        with pytest.raises(UnknownPlan, match="in wgrad of matmul: 32 x 48 x 4"):
            torch.func.grad(loss)(b)


def test_vectors_and_sizes_of_zero():
    chosen = {(4, 1, 32): ONE_CHAIN, (1, 1, 32): ONE_CHAIN}
    a, b = inputs(4, 32), inputs(32)
    with gs.emulate(library(chosen)):
        same(a @ b, gs.qmatmul(a, b, "bf16 : hw(hopper, wgmma, bf16) -> bf16"))
        same(torch.dot(b, b), gs.qmatmul(b, b, "bf16 : hw(hopper, wgmma, bf16) -> bf16"))
        assert not (inputs(4, 0) @ inputs(0, 48)).any()
        assert (inputs(0, 32) @ inputs(32, 48)).shape == (0, 48)


def test_what_is_added_comes_before_the_rounding():
    """In float32, which nobody has compared with a GPU."""
    x, weight, bias = inputs(4, 32), inputs(48, 32), inputs(48) * 0.3
    assert "-> e8m7" in str(LIBRARY.spec(4, 48, 32, "bf16"))
    register = gs.qmatmul(x, weight.mT, str(LIBRARY.spec(4, 48, 32, "bf16")).removesuffix(" -> e8m7"), out_dtype=FP32)
    with gs.emulate(LIBRARY), gs.audit() as report:
        found = nn.functional.linear(x, weight, bias)
        added = torch.addmm(inputs(4, 48), x, weight.mT, beta=2, alpha=0.5)
        one = nn.functional.linear(x, weight, bias[:1])
    same(found, (register + bias.float()).to(BF16))
    same(added, (register * 0.5 + inputs(4, 48).float() * 2).to(BF16))
    same(one, (register + bias[:1].float()).to(BF16))
    assert {one.evidence for one in report} == {"inferred"}
    assert not torch.equal(found, register.to(BF16) + bias)


def scaled_operands():
    g = torch.Generator().manual_seed(3)
    a, b = (torch.randn(n, 256, generator=g).to(torch.float8_e4m3fn) for n in (24, 48))
    a[3, 5] = float("nan")
    return a, b.t(), torch.tensor(0.3), torch.tensor(1.7)


@pytest.mark.parametrize("gpu", ["h100-pcie", "rtx4060"])
def test_scaled_products_are_those_of_scaled_mm(gpu):
    lib = gs.libraries.cublaslt(gpu, version="12.8", workspace=0)
    given = scaled_operands()
    more = {"scale_result": torch.tensor(30.0)}
    for dtype in (FP32, BF16, torch.float8_e4m3fn):
        for fast in (True, False):
            want = gs.scaled_mm(*given, **more, out_dtype=dtype, use_fast_accum=fast, library=lib)
            with gs.emulate(lib), gs.audit() as report:
                found = torch._scaled_mm(*given, **more, out_dtype=dtype, use_fast_accum=fast)
            assert torch.equal(found.view(torch.uint8), want.view(torch.uint8))
            assert [(one.source, one.shape) for one in report] == [("bound", (1, 24, 256, 48))]
            plan = lib.plan(24, 48, 256, "e4m3", out=dtype, fast_accumulation=fast)
            assert report.evidence == {plan.evidence: 1}
            assert ("promote" in report.records[0].spec) == (not fast)


def test_scaled_products_that_nobody_has_measured():
    lib = gs.libraries.cublaslt("h100-pcie", version="12.8", workspace=0)
    a, b, one, two = scaled_operands()
    rows = (torch.rand(24, 1), torch.rand(1, 48))
    calls = {
        "a bias": partial(torch._scaled_mm, a, b, one, two, torch.zeros(48, dtype=BF16), out_dtype=BF16),
        "each row": partial(torch._scaled_mm, a, b, *rows, out_dtype=BF16),
    }
    for words, call in calls.items():
        with gs.emulate(lib), pytest.raises(UnknownPlan, match=words):
            call()
        with gs.emulate(lib, unknown="chain"):
            assert call().shape == (24, 48)
    asks = gs.libraries.cublaslt("h100-pcie", version="12.8", workspace=1 << 20)
    with gs.emulate(asks), pytest.raises(UnknownPlan, match="24 x 48 x 256"):
        torch._scaled_mm(a, b, one, two, out_dtype=BF16)


@pytest.mark.parametrize("unknown", [None, "chain"])
def test_compiled(unknown):
    net, x = model(dtype=BF16), inputs(4, 32).requires_grad_()

    def run(x):
        with gs.emulate(LIBRARY, unknown=unknown):
            return net(x)

    want = run(x)
    wanted = torch.autograd.grad(want.sum(), [x, *net.parameters()])
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=None)
    found = compiled(x)
    same(found, want)
    for got, one in zip(torch.autograd.grad(found.sum(), [x, *net.parameters()]), wanted, strict=True):
        same(got, one)
    if unknown:
        for rows in (5, 6, 7):
            more = inputs(rows, 32)
            same(compiled(more), run(more))
    else:
        with pytest.raises(UnknownPlan, match="5 x 48 x 32"):
            compiled(inputs(5, 32))


def test_compiled_inside_a_context():
    net, x = model(dtype=BF16), inputs(4, 32)
    with gs.emulate(LIBRARY):
        want = net(x)
        same(torch.compile(net, fullgraph=True, backend="aot_eager")(x), want)


def test_converted_and_dry():
    net, x = model(dtype=BF16), inputs(4, 32)
    with gs.emulate(LIBRARY):
        want = net(x)
    report = gs.audit.dry_run(net, x, LIBRARY)
    assert report.evidence == {"silicon": 5} and {one.role for one in report} == {"fprop", "dgrad", "wgrad"}
    with pytest.raises(UnknownPlan, match="module '0'"):
        gs.audit.dry_run(net, inputs(5, 32), LIBRARY)
    assert gs.audit.dry_run(net, inputs(5, 32), Config.of(LIBRARY).with_unknown("chain")).evidence == {"assumed": 5}
    gs.convert(net, LIBRARY)
    same(net(x), want)


def test_configs_of_equal_libraries_are_equal():
    one, other = Config.of(LIBRARY), Config.of([("*", library())])
    assert one == other and one.text == other.text and hash(one) == hash(other)
    assert one != Config.of(library({(4, 48, 32): ONE_CHAIN})) and one != one.with_unknown("chain")
    assert pickle.loads(pickle.dumps(one)) == one and Config.from_json(one.to_json()) == one
    gc.collect()
    from gemmsim.emulation.rules import INTERNED

    before = len(INTERNED)
    for _ in range(5):
        gs.emulate(library())
    assert len(INTERNED) == before
    foreign = one.to_dict()
    foreign["rules"][0]["formats"]["number"] = 10**6
    with pytest.raises(gs.SpecError, match="this process"):
        Config.from_dict(foreign)


def test_bad_input():
    for spec, unknown in ((LIBRARY, "guess"), (":fp32", "chain"), (None, "chain")):
        with pytest.raises(ConfigError, match="unknown="):
            gs.emulate(spec, unknown=unknown)
    with pytest.raises(gs.SpecError):
        gs.emulate({"fprop": LIBRARY})
    with pytest.raises(ConfigError, match="a library"):
        gs.emulate(3)
    assert LibraryFormats(LIBRARY).number == LibraryFormats(library()).number


def test_a_library_rejects_sizes():
    lib = gs.libraries.cublaslt("h100-pcie", version="12.8", workspace=0)
    a, b = (torch.randn(n, 24).to(torch.float8_e4m3fn) for n in (16, 16))
    one = torch.tensor(1.0)
    with gs.emulate(lib), pytest.raises(gs.libraries.LibraryError, match="multiples of 16"):
        torch._scaled_mm(a, b.t(), one, one, out_dtype=BF16)
