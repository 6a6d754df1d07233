"""A recipe is a word wherever the formats of a layer or model are asked for."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.arithmetic import recipe_words
from gemmsim.arithmetic.recipe_words import RECIPES
from gemmsim.emulation import Config


def test_the_words_are_the_recipes():
    assert sorted((*RECIPES, "all_products", "rules", "svg")) == sorted(gs.recipes.__all__)


@pytest.mark.parametrize("name", RECIPES)
def test_a_word_is_its_recipe(name):
    recipe = getattr(gs.recipes, name)()
    for text in (name, f"{name}()", f" {name.upper()} ( )", str(recipe), repr(recipe)):
        assert gs.QAffineFormats.of(text) == recipe
        assert Config.of(text) == Config.of(recipe) and Config.of([("*", text)]) == Config.of([("*", recipe)])
        assert gs.explain(text).endswith(gs.explain(recipe))  # before it, the publication
        layer = gs.nn.QLinear(32, 8, spec=text)
        assert layer.formats == recipe
        layer.formats = None
        layer.formats = text
        assert layer.formats == recipe
    assert Config.from_json(json.dumps([["*", name]])) == Config.of(recipe)
    assert Config.from_dict({"rules": [{"formats": name}]}) == Config.of(recipe)


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "hopper_fp8_delayed"])  # needs a history
def test_a_word_computes_what_its_recipe_computes(name):
    torch.manual_seed(0)
    x, w, recipe = torch.randn(4, 64), torch.randn(8, 64), getattr(gs.recipes, name)()
    want = gs.qlinear(x, w, None, recipe)
    assert torch.equal(gs.qlinear(x, w, None, name), want)
    assert torch.equal(gs.qmatmul(x, w.T, name), want) and torch.equal(gs.qmm(x, w.T, f"{name}()"), want)
    model = nn.Sequential(nn.Linear(64, 8))
    want = model.requires_grad_(False) and None
    with gs.emulate(recipe):
        want = model(x)
    with gs.emulate(name):
        assert torch.equal(model(x), want)
    assert torch.equal(gs.convert(model, name)(x), want)


def test_gradients_of_a_word_are_those_of_its_recipe():
    torch.manual_seed(0)
    x, w = torch.randn(4, 64), torch.randn(8, 64)
    grads = []
    for formats in (gs.recipes.hopper_fp8(), "hopper_fp8"):
        a = w.clone().requires_grad_()
        gs.qmatmul(x, a.T, formats).square().sum().backward()
        grads.append(a.grad)
    assert torch.equal(*grads)


def test_arguments_of_recipes():
    assert gs.QAffineFormats.of("hopper_fp8(2)") == gs.QAffineFormats.of("hopper_fp8(margin=2)")
    assert gs.QAffineFormats.of("hopper_fp8(2)") == gs.recipes.hopper_fp8(margin=2)
    assert gs.QAffineFormats.of("mxfp8(e5m2)") == gs.recipes.mxfp8("e5m2")


@pytest.mark.parametrize("text, message", [
    ("hopper_fp8(x)", "recipes.hopper_fp8: margin='x'; allowed: an integer"),
    ("fp16_accumulate(1.5)", "recipes.fp16_accumulate: margin='1.5'"),
    ("hopper_fp8(1, 2)", "recipe 'hopper_fp8': more arguments than it takes; allowed: margin="),
    ("hopper_fp8(1, margin=2)", "recipe 'hopper_fp8': more arguments than it takes; allowed: margin="),
    ("hopper_fp8(margn=1)", "unknown option 'margn'; allowed: margin=.*Did you mean margin=1"),
    ("nvfp4(grad=e4m3)", "unknown option 'grad'; allowed: none.*Try 'nvfp4'"),
    ("all_products(e4m3 : fp32, gard=e5m2)", "unknown option 'gard'.*allowed: grad, .*Did you mean grad=e5m2"),
    ("all_products(e4m3 : mul=bf16, add=fp32, gard='e5m2')", "unknown option 'gard'.*Did you mean grad=e5m2"),
    ("all_products(e4m3 : fp32, grad=e5m2, arithmetic=fp32)", "option 'grad' in the spec.*Write it last"),
    ("all_products(spec='e4m3 : fp32')", "unknown option 'spec'.*without its name: 'all_products.e4m3 : fp32.'"),
    ("all_products()", "without a spec.*Try 'all_products"),
    ("all_products", "without a spec.*Try 'all_products"),
    ("mxfp8(e4m9)", "grad='e4m9'"),
    ("hoper_fp8", "Did you mean the recipe 'hopper_fp8'"),
    ("hopper_fp8 : fp32", "Did you mean the recipe 'hopper_fp8'"),
    ("QAffineFormats(fprop=", "what str"),
    ("QAffineFormats(fprop=open('x'))", "what str"),
    ("QAffineFormats(':fp32')", "arguments by name"),
    ("QAffineFormats(mine=1)", "QAffineFormats.from_dict: mine"),
    ("QAffineFormats(fprop=':bf17')", "unknown format 'bf17'"),
])  # fmt: skip
def test_wrong_words_say_what_is_allowed(text, message):
    with pytest.raises((gs.SpecError, gs.FormatError), match=f"(?s){message}"):
        gs.QAffineFormats.of(text)


def test_fields_of_a_spec_are_no_options_of_the_recipe():
    """Each keyword that a spec has outside brackets goes on being the spec's."""
    spec = "e4m3 : mul=bf16, add=fp32, init=c_first, seed=3, arithmetic=exact"
    assert gs.QAffineFormats.of(f"all_products({spec}, grad=e5m2)") == gs.recipes.all_products(spec, "e5m2")
    inside = {field.name for field, _ in gs.arithmetic.Sequential._arguments()}
    assert {*recipe_words._OF_SPECS} == inside | {"arithmetic"}


@pytest.mark.parametrize("margin", ["x", 1.5, True, None])
def test_a_margin_that_is_no_integer_is_named_as_the_recipe_names_it(margin):
    for recipe in (gs.recipes.hopper_fp8, gs.recipes.fp16_accumulate):
        with pytest.raises(gs.FormatError, match=f"^recipes.{recipe.__name__}: margin={margin!r}; allowed: an integer"):
            recipe(margin=margin)


@pytest.mark.parametrize("formats", ["hopper_fp8", gs.recipes.hopper_fp8(), str(gs.recipes.hopper_fp8())])
def test_one_product_alone_takes_no_recipe(formats):
    a = torch.ones(1, 32)
    for call in (
        lambda: gs.trace(a, a.T, formats),
        lambda: gs.compare(formats, ":fp32", a, a.T),
        lambda: gs.count_events(a, a.T, formats),
        lambda: gs.QAffineFormats(fprop=formats),
        lambda: gs.emulate({"fprop": formats}),
    ):
        with pytest.raises(gs.SpecError, match="describes three products .fprop, dgrad and wgrad."):
            call()


def test_a_format_registered_under_a_recipes_name_stays_that_format(monkeypatch):
    from gemmsim.formats import parsing as text

    monkeypatch.setattr(text, "_REGISTERED", {})
    gs.formats.register("hopper_fp8", gs.formats.parse("e4m3"))
    text._parse.cache_clear()
    assert gs.QAffineFormats.of("hopper_fp8") == gs.QAffineFormats.of(":e4m3")
    assert gs.QAffineFormats.of("hopper_fp8()") == gs.recipes.hopper_fp8()
    text._parse.cache_clear()


def test_the_command_line(tmp_path, monkeypatch):
    from gemmsim.cli.app import app

    monkeypatch.chdir(tmp_path)
    program = "import torch\ntorch.manual_seed(0)\nx = torch.randn(2, 32)\nprint((x @ torch.randn(32, 2)).tolist())"
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "rules.json").write_text('[["*", "hopper_fp8"]]')
    said = []
    for options in (["--spec", "hopper_fp8"], ["--spec", "hopper_fp8()"], ["--config", "rules.json"]):
        result = CliRunner().invoke(app, ["emulate", *options, "train.py"])
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
    torch.manual_seed(0)
    x = torch.randn(2, 32)
    want = gs.qmatmul(x, torch.randn(32, 2), gs.recipes.hopper_fp8()).tolist()
    assert said == [f"{want}\n"] * 3
    assert CliRunner().invoke(app, ["explain", "hopper_fp8"]).stdout.count("QAffineFormats(fprop='e4m3/sat") == 1
