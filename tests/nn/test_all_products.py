"""One arithmetic for all three products, and the warning where a spec alone casts the forward product's operands only."""

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import gemmsim as gs
from gemmsim.formats import FormatError

X = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("all_products(e4m3 : fp32)", gs.recipes.all_products("e4m3 : fp32")),
        (" All_Products( 'e4m3 : fp32' )", gs.recipes.all_products("e4m3 : fp32")),
        (
            "all_products(e4m3 : chunked(16, fp32), grad=e5m2)",
            gs.recipes.all_products("e4m3 : chunked(16, fp32)", "e5m2"),
        ),
        ("all_products(e4m3*e2m1 : fp32, grad = 'e5m2/sr')", gs.recipes.all_products("e4m3 * e2m1 : fp32", "e5m2/sr")),
    ],
)
def test_as_a_word(text, value):
    assert gs.QAffineFormats.of(text) == value


def test_each_product_casts_what_it_multiplies():
    found = gs.recipes.all_products("e4m3 * e2m1 : fp32")
    specs = [str(getattr(found, role)) for role in ("fprop", "dgrad", "wgrad")]
    assert specs == ["e4m3 * e2m1 : e8m23", "e4m3 * e2m1 : e8m23", "e2m1 * e4m3 : e8m23"]
    found = gs.recipes.all_products("e4m3 * e2m1 : fp32", grad="e5m2")
    assert (str(found.dgrad), str(found.wgrad)) == ("e5m2 * e2m1 : e8m23", "e5m2 * e4m3 : e8m23")
    g = torch.randn(16, 8)
    layer = nn.Linear(64, 8, bias=False)
    x = X.clone().requires_grad_()
    with gs.emulate("all_products(e4m3*e2m1 : fp32, grad=e5m2)"):
        layer(x).backward(g)
    cast = {name: gs.quantize(t, name) for name, t in (("e5m2", g), ("e2m1", layer.weight.detach()), ("e4m3", X))}
    assert torch.equal(x.grad, gs.qmatmul(cast["e5m2"], cast["e2m1"], ":fp32"))
    assert torch.equal(layer.weight.grad, gs.qmatmul(cast["e5m2"].mT, cast["e4m3"], ":fp32"))


@pytest.mark.parametrize(
    "text", ["all_products()", "all_products(e4m9x : fp32)", "all_products(e4m3 : fp32, grad=e5m99)"]
)
def test_what_names_nothing(text):
    with pytest.raises((gs.SpecError, FormatError)):
        gs.QAffineFormats.of(text)


def trained(spec):
    """Warnings of a training step in a process of its own: they come once in each."""
    code = f"""
import warnings, torch, gemmsim as gs
layer, x = torch.nn.Linear(8, 4), torch.randn(2, 8)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        with gs.emulate({spec!r}):
            layer(x).sum().backward()
print(sum("only the operands of the forward product" in str(one.message) for one in told))
print(*[str(one.message) for one in told], sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, _, text = done.stdout.partition("\n")
    return int(count), text


def test_a_spec_alone_warns_once_of_its_gradients():
    count, text = trained("e4m3 : fp32")
    assert count == 1 and "all_products(e4m3 : e8m23)" in text and "dgrad=':e8m23'" in text


@pytest.mark.parametrize(
    "spec",
    [":bf16", "hw(hopper, wgmma, e4m3)", "mxfp8_e4m3 : fp32", "hopper_fp8", "all_products(e4m3 : fp32)"],
)
def test_other_specs_do_not_warn(spec):
    assert trained(spec)[0] == 0


def test_inference_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", gs.FormatsWarning)
        with gs.emulate("e4m2 : fp32"), torch.no_grad():
            nn.Linear(64, 8)(X)
