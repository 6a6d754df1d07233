"""Recipes: values that layers take, with gradients that neither vanish nor overflow."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from support import ROOT
from torch import nn

import gemmsim as gs

RECIPES = [
    gs.recipes.hopper_fp8,
    gs.recipes.deepseek_fp8,
    gs.recipes.mxfp8,
    gs.recipes.nvfp4,
    gs.recipes.fp16_accumulate,
    gs.recipes.hopper_fp8_current,
    gs.recipes.deepseek_v3,
    gs.recipes.mxfp8_pretraining,
    gs.recipes.nvfp4_pretraining,
    gs.recipes.mxfp4_hadamard,
    gs.recipes.torchao_tensorwise,
    gs.recipes.torchao_rowwise,
    gs.recipes.torchao_rowwise_gw_hp,
]
#: Its scales need a history, which functions have none of (test_delayed_scaling.py).
DELAYED = gs.recipes.hopper_fp8_delayed
each = pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.__name__)


@pytest.mark.parametrize("recipe", [*RECIPES, DELAYED], ids=lambda r: r.__name__)
def test_recipes_are_values_with_a_source(recipe):
    value = recipe()
    assert isinstance(value, gs.QAffineFormats) and value is recipe()
    assert (
        pickle.loads(pickle.dumps(value))
        == copy.deepcopy(value)
        == value
        == gs.QAffineFormats.from_dict(value.to_dict())
    )
    assert "Source:" in recipe.__doc__
    assert any(name in recipe.__doc__ for name in ("arXiv:", "torchao", "Transformer Engine"))
    assert all(spec is not None for spec in (value.fprop, value.dgrad, value.wgrad))
    assert recipe.__name__ in gs.recipes.__all__ and set(gs.recipes.__all__) == {
        r.__name__ for r in [*RECIPES, DELAYED]
    } | {
        "all_products",
        "rules",
        "svg",
    }


@each
def test_a_small_network_learns_with_tiny_losses_and_large_inputs(recipe):
    torch.manual_seed(0)
    formats = recipe()
    net = nn.Sequential(gs.nn.QLinear(32, 32, spec=formats), nn.ReLU(), gs.nn.QLinear(32, 4, spec=formats))
    x = torch.randn(64, 32)
    target = torch.tanh(x @ torch.randn(32, 4) / 6)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-30)
    first = 0.0
    for step in range(20):
        loss = (net(x * 1e6) / 1e6 - target).square().mean()
        first = loss.item() if step == 0 else first
        optimizer.zero_grad()
        (loss * 2.0**-20).backward()
        optimizer.step()
        for layer in (net[0], net[2]):
            assert layer.weight.grad.isfinite().all() and layer.weight.grad.ne(0).float().mean() > 0.7
    assert loss.item() < first / 3


@each
def test_results_are_close_to_those_in_float32(recipe):
    torch.manual_seed(0)
    x, w, g = torch.randn(16, 96, requires_grad=True), torch.randn(24, 96, requires_grad=True), torch.randn(16, 24)
    want = [(x @ w.T).detach(), g @ w.detach(), g.T @ x.detach()]
    y = gs.qlinear(x, w, None, recipe())
    got = [y.detach(), *torch.autograd.grad(y, (x, w), g)]
    four_bits = (gs.recipes.nvfp4, gs.recipes.nvfp4_pretraining, gs.recipes.mxfp4_hadamard)
    bound = 0.3 if recipe in four_bits else 0.08
    for a, b in zip(got, want, strict=True):
        assert 0 < (a - b).norm() < bound * b.norm()


def test_hopper_is_what_its_parts_are():
    """Scales, casts, products and scales taken off, one by one."""
    torch.manual_seed(0)
    x, w, g = torch.randn(8, 64) * 3e-5, torch.randn(16, 64) * 40, torch.randn(8, 16) * 2.0**-25
    x.requires_grad_()
    y = gs.qlinear(x, w.requires_grad_(), None, gs.recipes.hopper_fp8())
    dx, dw = torch.autograd.grad(y, (x, w), g)

    def scaled(t, fmt):
        t = t.detach()
        factor = 2.0 ** torch.floor(torch.log2(gs.formats.parse(fmt).max / t.abs().amax()))
        return gs.quantize(t * factor, fmt), factor

    (qx, sx), (qw, sw), (qg, sg) = scaled(x, "e4m3"), scaled(w, "e4m3"), scaled(g, "e5m2")
    split = "promote(hw(hopper, wgmma, {}, {}), 128)"
    assert torch.equal(y, gs.qmm(qx, qw.T, "hw(hopper, wgmma, e4m3)") / (sx * sw))
    assert torch.equal(dx, gs.qmm(qg, qw, split.format("e5m2", "e4m3")) / (sg * sw))
    assert torch.equal(dw, gs.qmm(qg.T, qx, split.format("e5m2", "e4m3")) / (sg * sx))


def test_deepseek_adds_scaled_totals_of_128():
    torch.manual_seed(0)
    x, w = torch.randn(4, 300), torch.randn(5, 300)
    block = gs.formats.parse("mxfp8_e4m3/b128/rceil")
    total = torch.zeros(4, 5)
    for k in range(0, 300, 128):
        left, right = (gs.mx.quantize(t[:, k : k + 128], block) for t in (x, w))
        sl, sr = (2.0 ** torch.ceil(torch.log2(t.abs().amax(1, keepdim=True) / 448)) for t in (left, right))
        total += gs.qmm(left / sl, (right / sr).T, "hw(hopper, wgmma, e4m3)") * sl * sr.T
    assert torch.equal(gs.qlinear(x, w, None, gs.recipes.deepseek_fp8()), total)


@pytest.mark.parametrize("recipe", [gs.recipes.hopper_fp8, gs.recipes.fp16_accumulate], ids=lambda r: r.__name__)
def test_recipes_for_convolutions(recipe):
    layer = gs.nn.QConv2d(3, 4, 3, spec=recipe())
    layer(torch.randn(2, 3, 8, 8) * 1e6).mul(2.0**-60).sum().backward()
    assert layer.weight.grad.isfinite().all() and layer.weight.grad.ne(0).all()


def test_fp16_registers_do_not_overflow_by_default():
    x, w = torch.full((1, 4096), 3e5), torch.full((1, 4096), 7.0)
    assert gs.qlinear(x, w, None, gs.recipes.fp16_accumulate()).isfinite().all()
    assert gs.qlinear(x, w, None, gs.recipes.fp16_accumulate(0)).isinf().all()


def test_options():
    assert gs.recipes.mxfp8("e5m2").wgrad.a != gs.recipes.mxfp8().wgrad.a
    assert gs.recipes.mxfp8("e5m2").fprop == gs.recipes.mxfp8().fprop
    assert gs.recipes.hopper_fp8(margin=2).scale_margin == 2
    with pytest.raises(gs.SpecError, match="'e4m3', 'e5m2'"):
        gs.recipes.mxfp8("e4m4")


def test_layers_that_stay_as_they_are():
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 8))
    rules = gs.recipes.rules(net, "deepseek_v3", last=1, keep=["0"])
    assert rules == [("0", None), ("3", None), ("0", "deepseek_v3"), ("2", "deepseek_v3"), ("*", None)]
    x = torch.randn(4, 16)
    with gs.emulate(rules), gs.audit() as audit:
        net(x)
    specs = {record.module: record.spec for record in audit.records}
    assert specs["0"] == specs["3"] == "native" and "@1x128" in str(specs["2"])
    for wrong in ({"first": -1}, {"last": True}):
        with pytest.raises(gs.SpecError, match="an integer from 0"):
            gs.recipes.rules(net, "deepseek_v3", **wrong)
    with pytest.raises(gs.SpecError, match="no torch.nn.Linear"):
        gs.recipes.rules(nn.Conv2d(1, 1, 1), "deepseek_v3")


def test_explanations_have_a_table_and_the_source():
    said = gs.explain("nvfp4_pretraining")
    assert "Source: NVIDIA" in said and "arXiv:2509.25149" in said
    assert "wgrad    gradient  e2m1/sr16/sat  1x16       nvfp4" in said and "Hadamard of 16" in said
    assert "sums of dgrad: hw(blackwell, mxf4nvf4, e2m1)" in said


def by_hand(x, w, g, casts, inner, step=128):
    """fprop, dgrad and wgrad with scales amax / 448 by loops: ``casts`` quantise (values, terms along the last dim)."""

    def product(a, b):
        total = torch.zeros(a[0].shape[0], b[0].shape[0])
        for k in range(0, a[0].shape[1], step):
            part = slice(k, k + step)
            t = gs.qmatmul(a[0][:, part], b[0][:, part].t(), inner)
            scale = a[1][:, k, None] * b[1][None, :, k]
            total = (total.double() + t.double() * scale.double()).float()
        return total

    rows, blocks = casts
    fprop = product(rows(x), blocks(w))
    dgrad = product(rows(g), blocks(w.t().contiguous()))
    kept = rows(x)[0] * rows(x)[1]
    return fprop, dgrad, product(rows(g.t().contiguous()), rows(kept.t().contiguous()))


def test_deepseek_v3_is_what_its_parts_are():
    torch.manual_seed(0)
    x, w, g = torch.randn(150, 260), torch.randn(140, 260), torch.randn(150, 140)

    def scaled(t, rows):
        d = torch.zeros_like(t)
        for i in range(0, t.shape[0], rows):
            for k in range(0, t.shape[1], 128):
                d[i : i + rows, k : k + 128] = t[i : i + rows, k : k + 128].abs().max() / 448
        return gs.quantize(t / d, "e4m3/sat"), d

    found = by_hand(x, w, g, (lambda t: scaled(t, 1), lambda t: scaled(t, 128)), "hw(hopper, wgmma, e4m3)")
    x.requires_grad_(), w.requires_grad_()
    y = gs.qlinear(x, w, None, "deepseek_v3")
    y.backward(g)
    assert torch.equal(y, found[0]) and torch.equal(x.grad, found[1]) and torch.equal(w.grad, found[2])


def test_transforms_of_both_operands_leave_the_exact_product():
    """With elements of 18 bits the parts of the recipe of four bits give the product itself."""
    x, w = torch.randn(64, 128), torch.randn(32, 128)
    spec = "e6m17@1x32/hadamard(64,5)/gain(0.75) : scaled(fp32)"
    assert torch.allclose(gs.qmatmul(x, w.t(), spec), x @ w.t(), rtol=1e-4, atol=1e-3)


def test_stochastic_gradients_are_right_on_average():
    """dgrad of MXFP4 with random bits: the mean of many seeds is within five standard errors of the exact one."""
    torch.manual_seed(1)
    g, w = torch.randn(2, 64), torch.randn(64, 2)
    exact = g.double() @ w.double()
    spec = gs.recipes.mxfp4_hadamard().dgrad
    drawn = torch.stack([gs.qmatmul(g, w, spec, seed=s) for s in range(400)]).double()
    error = (drawn.mean(0) - exact).abs() / (drawn.std(0) / 20)
    assert error.max() < 5


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "recipes" / "pictures").glob("*.svg")), ids=lambda p: p.stem
)
def test_pictures_on_the_pages_are_of_todays_recipes(picture):
    assert picture.read_text() == gs.recipes.svg(picture.stem)


def test_pictures_of_any_formats():
    drawn = gs.recipes.svg(gs.QAffineFormats(fprop="e4m3 : fp32 -> bf16"), title="a < b")
    assert "a &lt; b" in drawn and "PyTorch's own product" in drawn.replace("&#x27;", "'") and ", to e8m7" in drawn
