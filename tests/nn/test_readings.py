"""What layers warn of: formats that mean something else than they seem to, and gradients that vanish."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch

import gemmsim as gs
from gemmsim.ops.product import affine_formats, format_warnings, gradient_underflow
from gemmsim.ops.product.affine_plan import AffinePlan, Product


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(format_warnings, "_SEEN", set())
    monkeypatch.setattr(gradient_underflow, "_TOLD", set())
    monkeypatch.setattr(gradient_underflow, "_PASSES", {})


def told(call):
    """Texts of the package's warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in found if w.category is gs.FormatsWarning]


PLACES = {
    "QLinear": lambda f: gs.nn.QLinear(2, 2, spec=f),
    "QLinear.from_float": lambda f: gs.nn.QLinear.from_float(torch.nn.Linear(2, 2), f),
    "formats=": lambda f: setattr(gs.nn.QLinear(2, 2), "formats", f),
    "QConv2d": lambda f: gs.nn.QConv2d(1, 1, 1, spec=f),
    "QLSTM": lambda f: gs.nn.QLSTM(2, 2, spec=f),
    "QMultiheadAttention": lambda f: gs.nn.QMultiheadAttention(2, 1, projection=f),
    "fprop": lambda f: gs.QAffineFormats(fprop=f),
    "dgrad": lambda f: gs.QAffineFormats(dgrad=f),
    "qk": lambda f: gs.QAttentionFormats(qk=f),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text, accumulator, operands", [
    ("e4m3", "':e4m3'", "'e4m3 : fp32'"),
    ("e4m3 -> fp16", "':e4m3 -> fp16'", "'e4m3 : fp32 -> fp16'"),
    ("fp16/rtz", "':fp16/rtz'", "'fp16/rtz : fp32'"),
    ("e4m3, arithmetic=fp32", "':e4m3, arithmetic=fp32'", "'e4m3 : fp32, arithmetic=fp32'"),
])  # fmt: skip
def test_a_format_alone_warns_once_with_both_readings(place, text, accumulator, operands):
    (message,) = told(lambda: PLACES[place](text))
    assert "means the accumulator's format" in message and accumulator in message and operands in message
    assert told(lambda: PLACES[place](text)) == []
    for reading in (accumulator, operands):
        assert told(lambda r=reading: PLACES[place](r.strip("'"))) == []


def test_the_warning_points_at_the_line_that_gives_the_format():
    for i, call in enumerate(PLACES.values()):
        with pytest.warns(gs.FormatsWarning) as found:
            call(f"e4m{i + 4}")
        assert {w.filename for w in found} == {__file__}


def test_the_meaning_of_a_format_alone_is_that_of_a_spec():
    with pytest.warns(gs.FormatsWarning):
        layer = gs.nn.QLinear(2, 2, spec="e4m3")
    assert layer.formats == gs.nn.QLinear(2, 2, spec=":e4m3").formats
    assert told(lambda: pickle.loads(pickle.dumps(layer))) == []
    assert told(lambda: gs.QAffineFormats.from_dict(layer.formats.to_dict())) == []


@pytest.mark.parametrize("value", [
    "fp32", "fp64", "mul=e5m10, add=e6m9", "chunked(8, e5m10)", ": e4m3", "e4m3 * : e5m10", None,
    gs.GemmSpec.parse("e4m3"), gs.acc.sequential("e4m3"), "fp32 -> fp16",
])  # fmt: skip
def test_what_says_its_place_does_not_warn(value):
    assert told(lambda: gs.nn.QLinear(2, 2, spec=value)) == []


def test_formats_and_casts_warn_like_their_names():
    for value in (gs.formats.E4M3, gs.formats.parse_cast("e4m3/sat")):
        (message,) = told(lambda v=value: gs.nn.QLinear(2, 2, spec=v))
        assert "':e4m3" in message


def test_functions_and_specs_do_not_warn():
    x = torch.ones(2, 2)
    assert (
        told(lambda: (gs.qlinear(x, x, None, "e4m3"), gs.qmatmul(x, x, "e4m3 -> fp16"), gs.GemmSpec.of("e4m3"))) == []
    )


def test_gradients_that_no_cast_would_change_are_not_told_of():
    uncast = "rounds only the operands of the forward product"
    cases = [
        ("fp32 : fp32", torch.float32, False),
        ("fp32 : fp64", torch.float32, False),
        ("fp64 : fp32", torch.float32, False),
        ("fp32 : fp32", torch.bfloat16, False),
        ("bf16 : fp32", torch.bfloat16, False),
        ("fp32 : fp32", torch.float64, True),
        ("bf16 : fp32", torch.float32, True),
        ("fp16 : fp32", torch.bfloat16, True),
        ("fp32/ftz : fp32", torch.float32, True),
        ("fp32 * bf16 : fp32", torch.float32, True),
        ("bf16 * fp32 : fp32", torch.float32, True),
    ]
    for spec, dtype, warns in cases:
        format_warnings._SEEN.clear()
        gradient_underflow._PASSES.clear()
        affine_formats._of_spec.cache_clear()  # the spec is read anew
        x = torch.ones(3, 4, dtype=dtype, requires_grad=True)
        layer = gs.nn.QLinear(4, 2, spec=spec, dtype=dtype)
        texts = told(layer(x).sum().backward)
        assert any(uncast in text for text in texts) is warns, (spec, dtype)


def test_text_that_is_no_spec_keeps_its_error():
    with pytest.raises(gs.SpecError):
        gs.nn.QLinear(2, 2, spec="e4m3 -> nothing")


# Gradients that vanish

NAIVE = "hw(hopper, wgmma, e4m3)"


def backward(layer, factor, shape=(8, 16)):
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    y = layer(x)
    y.backward(torch.randn_like(y) * factor)
    return layer


def linear(formats):
    torch.manual_seed(0)
    return gs.nn.QLinear(16, 32, spec=formats)


def test_vanishing_gradients_are_told_once_and_what_to_do():
    layer = linear(NAIVE)
    assert told(lambda: backward(layer, 1.0)) == []
    (message,) = told(lambda: backward(layer, 2.0**-13))
    assert "became zero in a backward pass without scaling" in message and "gemmsim.recipes" in message
    assert layer.weight.grad.isfinite().all()
    assert told(lambda: [backward(linear(NAIVE), 2.0**-13) for _ in range(4)]) == []


@pytest.mark.parametrize("formats", [
    gs.QAffineFormats(fprop="e4m3 : fp32", grad_quant="e4m3"),
    gs.QAffineFormats(dgrad=":e5m2"),
    gs.QAffineFormats(wgrad=":e5m2"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_every_place_where_gradients_vanish_is_seen(formats, kind):
    torch.manual_seed(0)
    layer, shape = (
        (linear(formats), (8, 16)) if kind == "linear" else (gs.nn.QConv2d(3, 8, 3, spec=formats), (2, 3, 6, 6))
    )
    assert len(told(lambda: backward(layer, 2.0**-20, shape))) == 1


def test_gradients_that_vanish_in_their_last_rounding_are_seen():
    formats = gs.QAffineFormats(grad_quant=lambda g: g if g.shape == (8, 32) else g * 0)
    assert len(told(lambda: backward(linear(formats), 1.0))) == 1


@pytest.mark.parametrize("formats", [
    None, "e4m3 : fp32", gs.recipes.hopper_fp8(), gs.recipes.mxfp8(), gs.recipes.fp16_accumulate(),
], ids=str)  # fmt: skip
def test_scaled_and_wide_gradients_are_not_told_of(formats):
    layer = linear(formats)
    lost = [text for text in told(lambda: [backward(layer, f) for f in (1.0, 2.0**-30)]) if "became zero" in str(text)]
    assert lost == []
    assert layer.weight.grad.ne(0).all()


def test_zeros_that_were_there_are_not_lost():
    layer = linear(NAIVE)

    def run():
        y = layer(torch.relu(torch.randn(8, 16)) * 0)
        y.backward(torch.randn_like(y).relu())

    assert told(run) == []


def test_later_passes_are_looked_at_now_and_then():
    layer = linear(NAIVE)
    assert told(lambda: [backward(layer, 1.0) for _ in range(4)]) == []
    assert [len(told(lambda: backward(layer, 2.0**-13))) for _ in range(5, 10)] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("lost, warned", [(86, 0), (128, 0), (129, 1)])
def test_more_than_half_of_the_incoming_gradients_must_vanish(lost, warned):
    """Of 8 x 32 numbers, by ``grad_quant``."""
    keep = (torch.arange(256) >= lost).view(8, 32)
    formats = gs.QAffineFormats(grad_quant=lambda g: g * keep if g.shape == keep.shape else g)
    assert len(told(lambda: backward(linear(formats), 1.0))) == warned


@pytest.mark.parametrize("lost, warned", [(3, 0), (4, 0), (5, 1)])
def test_more_than_half_of_a_products_results_must_vanish(lost, warned):
    """Of 8 rows of gradients, by the accumulator of ``dgrad``, whose least number is 2^-16."""
    rows = torch.where(torch.arange(8) < lost, 2.0**-30, 1.0)[:, None]

    def run():
        x = torch.randn(8, 16, requires_grad=True)
        y = linear(gs.QAffineFormats(dgrad=":e5m2"))(x)
        y.backward(torch.randn_like(y) * rows)
        assert (x.grad == 0).all(1).sum() == lost

    assert len(told(run)) == warned


def test_passes_by_powers_of_two_and_every_1024th_are_looked_at():
    plan, gradient = AffinePlan(dgrad=Product.of(gs.GemmSpec.parse(":e5m2"))), torch.ones(1)
    looked_at = [n for n in range(1, 5 * 1024) if gradient_underflow.probe(plan, gradient) is not None]
    assert looked_at == [*(2**k for k in range(12)), 3 * 1024, 4 * 1024]


def test_compiled_code_and_transforms_are_not_disturbed():
    torch._dynamo.reset()
    layer = linear(NAIVE)
    x = torch.randn(8, 16)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert told(lambda: (compiled(x) * 2.0**-13).sum().backward()) == []
    f = torch.func.grad(lambda w: (gs.qlinear(x, w, None, NAIVE) * 2.0**-13).sum())
    assert told(lambda: f(layer.weight.detach())) == []
