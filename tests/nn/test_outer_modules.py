"""PyTorch's transformer modules call every layer of gemmsim inside them, in every mode."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil

import pytest
import torch
from support import assert_bitwise_equal, assert_values_equal
from torch import nn

import gemmsim as gs
from gemmsim.compat import dmx, microxcaling, mptorch, qtorch, torchao, torchmx
from gemmsim.compat.torchmx.layers.mx_linear import MXInferenceLinear as TorchMXLinear
from gemmsim.nn import Emulated, call_children

SPEC = "e4m3 : e5m10"
MX = {"w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e4m3", "block_size": 32, "bfloat": 16}
HALF = "e5m10"
NORM = gs.QLayerNormFormats(*[HALF] * 7)
Q8 = {"num_bits": 8}


def copied(new, old):
    """``new`` with ``old``'s weight and bias."""
    new.load_state_dict(old.state_dict(), strict=False)
    return new


def torchmx_linear(old):
    config = torchmx.config.MXConfig("float8_e4m3", 32)
    return TorchMXLinear.from_float(old, torchmx.config.QLinearConfig(config, config))


def quantised(old):
    holder = nn.Sequential(copied(nn.Linear(32, 32), old))
    gs.tensor_quant.quantize_(holder, {"*input_quantizer": Q8, "*weight_quantizer": Q8})
    return holder[0]


def mptorch_linear(old):
    formats = mptorch.quant.QAffineFormats(fwd_mac=mptorch.FloatingPoint(exp=5, man=10), weight_quant=lambda w: w * 0.5)
    return copied(mptorch.quant.QLinear(32, 32, formats), old)


def encoded(old):
    made = copied(nn.Linear(32, 32), old)
    weight = gs.mx.to_mx(made.weight.detach(), "mxfp8_e4m3", act_format="mxfp8_e4m3")
    made.weight = nn.Parameter(weight, requires_grad=False)
    return made


def lazy(old):
    made = gs.nn.QLazyLinear(32, spec=SPEC)
    made(torch.zeros(1, 32))
    return copied(made, old)


#: What may stand in the place of a linear layer of width 32.
LINEAR = {
    "QLinear": lambda old: gs.nn.QLinear.from_float(old, SPEC),
    "QLazyLinear": lazy,
    "MXLinear": lambda old: gs.mx.MXLinear.from_float(old, "mxfp8_e4m3"),
    "NVFP4Linear": lambda old: gs.mx.NVFP4Linear.from_float(old),
    "MXInferenceLinear": lambda old: gs.mx.MXInferenceLinear.from_float(old, "mxfp8_e4m3"),
    "NVFP4InferenceLinear": lambda old: gs.mx.NVFP4InferenceLinear.from_float(old),
    "QuantLinear": quantised,
    "torchao.MXLinear": lambda old: torchao.MXLinear.from_float(old, torch.float8_e4m3fn, 32),
    "torchao.MXInferenceLinear": lambda old: torchao.MXInferenceLinear.from_float(old, torch.float8_e4m3fn, 32),
    "torchmx.MXInferenceLinear": torchmx_linear,
    "microxcaling.Linear": lambda old: copied(microxcaling.Linear(32, 32, mx_specs=MX), old),
    "mptorch.QLinear": mptorch_linear,
    "Linear of an MXTensor": encoded,
    "Sequential of a Quantizer": lambda old: nn.Sequential(gs.nn.Quantizer("e4m3"), old, gs.nn.Quantizer("e4m3")),
    "Sequential of a TensorQuantizer": lambda old: nn.Sequential(gs.tensor_quant.TensorQuantizer(Q8), old),
    "Sequential of dmx.CastTo": lambda old: nn.Sequential(dmx.CastTo("BFP[8|8]{32}(SN)"), old),
    "Sequential of qtorch.Quantizer": lambda old: nn.Sequential(
        qtorch.quant.Quantizer(qtorch.FloatingPoint(4, 3), forward_rounding="nearest"), old
    ),
}
NORMS = {
    "QLayerNorm": lambda old: gs.nn.QLayerNorm.from_float(old, NORM),
    "microxcaling.LayerNorm": lambda old: copied(microxcaling.LayerNorm(32, mx_specs=MX), old),
}
ACTIVATIONS = {
    "QGELU": lambda: gs.nn.QGELU(spec=gs.QGELUFormats(HALF, HALF, HALF, HALF)),
    "microxcaling.ReLU": lambda: microxcaling.ReLU(mx_specs=MX),
    "Quantizer": lambda: nn.Sequential(nn.ReLU(), gs.nn.Quantizer("e4m3")),
}


def encoder_layer(**options):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, **options}
    return nn.TransformerEncoderLayer(32, 4, 32, **options).eval()


def inputs():
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    return x, padding


def in_every_mode(model, *args, **kwargs):
    """The result with gradients, after it was found to be the same in every other mode."""

    def run():
        out = model(*args, **kwargs)
        return (out[0] if isinstance(out, tuple) else out).detach().clone()

    with torch.enable_grad():
        want = run()
    with torch.no_grad():
        assert torch.equal(run(), want), "no_grad"
    with torch.inference_mode():
        assert torch.equal(run(), want), "inference_mode"
    model.train()
    assert torch.equal(run(), want), "train"
    model.eval()
    return want


@pytest.mark.parametrize("kind", LINEAR)
def test_every_linear_layer_is_computed_in_an_encoder_layer(kind):
    x, padding = inputs()
    layer = encoder_layer()
    outs = [layer(x, src_key_padding_mask=padding)]
    for place in ("self_attn.out_proj", "linear1"):
        layer.set_submodule(place, LINEAR[kind](layer.get_submodule(place)))
        outs.append(in_every_mode(call_children(layer).eval(), x, src_key_padding_mask=padding))
    assert not torch.equal(outs[0], outs[1]) and not torch.equal(outs[1], outs[2])


def test_layers_of_users_with_the_mark_are_called():
    class Doubling(Emulated, nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    layer = encoder_layer()
    plain = layer(inputs()[0])
    for place in ("self_attn.out_proj", "linear1"):
        layer.set_submodule(place, copied(Doubling(32, 32), layer.get_submodule(place)))
    out = in_every_mode(call_children(layer).eval(), inputs()[0])
    for weight in (layer.self_attn.out_proj, layer.linear1):
        with torch.no_grad():
            weight.weight /= 2
            weight.bias /= 2
    assert not torch.equal(out, plain)
    assert_bitwise_equal(layer(inputs()[0]), plain)


@pytest.mark.parametrize("kind", NORMS)
def test_every_norm_is_computed_in_an_encoder_layer(kind):
    layer = encoder_layer(norm_first=True)
    plain = layer(inputs()[0])
    layer.norm2 = NORMS[kind](layer.norm2)
    assert not torch.equal(in_every_mode(call_children(layer).eval(), inputs()[0]), plain)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_is_computed_in_an_encoder_layer(kind):
    layer = encoder_layer(activation="gelu" if kind == "QGELU" else "relu")
    plain = layer(inputs()[0])
    layer.activation = ACTIVATIONS[kind]()
    assert not torch.equal(in_every_mode(call_children(layer).eval(), inputs()[0]), plain)


def test_attention_of_ours_is_computed_in_an_encoder_layer():
    layer = encoder_layer()
    plain = layer(inputs()[0])
    formats = gs.QAttentionFormats(qk=SPEC, pv=SPEC)
    layer.self_attn = gs.nn.QMultiheadAttention.from_float(layer.self_attn, formats, SPEC)
    one = in_every_mode(layer.eval(), inputs()[0])
    assert not torch.equal(one, plain)
    layer.self_attn.out_proj = gs.mx.MXLinear.from_float(layer.self_attn.out_proj, "mxfp4")
    assert not torch.equal(in_every_mode(layer.eval(), inputs()[0]), one)


def test_a_quantiser_on_a_parameter_is_computed():
    layer = encoder_layer()
    nn.utils.parametrize.register_parametrization(layer.self_attn, "in_proj_weight", gs.nn.Quantizer("e4m3"))
    nn.utils.parametrize.register_parametrization(layer.linear1, "weight", gs.nn.Quantizer("e4m3"))
    in_every_mode(call_children(layer), inputs()[0])
    in_every_mode(layer.self_attn, *[inputs()[0]] * 3)


@pytest.mark.parametrize("at", [0, 1])
def test_an_encoder_packs_nothing_where_any_of_its_layers_is_ours(at):
    x, padding = inputs()
    model = nn.TransformerEncoder(encoder_layer(), 2, nn.LayerNorm(32)).eval()
    model.layers[at].linear2 = LINEAR["QLinear"](model.layers[at].linear2)
    call_children(model)
    want = in_every_mode(model, x, src_key_padding_mask=padding)
    in_every_mode(model, x, mask=nn.Transformer.generate_square_subsequent_mask(5), is_causal=True)
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            assert torch.equal(same(x, src_key_padding_mask=padding), want)
    assert model.state_dict().keys() == nn.TransformerEncoder(encoder_layer(), 2, nn.LayerNorm(32)).state_dict().keys()


@pytest.mark.parametrize("place", ["linear1", "self_attn.out_proj"])
def test_a_transformer_computes_ours(place):
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 1, 1, 32, 0.0, batch_first=True).eval()
    for layer in (model.encoder.layers[0], model.decoder.layers[0]):
        layer.set_submodule(place, LINEAR["QLinear"](layer.get_submodule(place)))
    in_every_mode(call_children(model), *[inputs()[0]] * 2)


#: Arguments of ``nn.MultiheadAttention``, whose results with an ``out_proj`` of ours are PyTorch's up to that layer.
SETTINGS = [
    {}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 8, "vdim": 24},
    {"batch_first": True}, {"dropout": 0.5}, {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_attention_with_an_output_layer_of_ours_has_the_bits_of_pytorch(settings):
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(32, 4, **settings)
    ours = copy.deepcopy(plain)
    ours.out_proj = gs.nn.QLinear.from_float(copied(nn.Linear(32, 32, settings.get("bias", True)), ours.out_proj))
    call_children(ours)
    first = settings.get("batch_first", False)
    query, key, value = (
        torch.randn(*((3, n) if first else (n, 3)), width)
        for n, width in ((5, 32), (7, settings.get("kdim", 32)), (7, settings.get("vdim", 32)))
    )
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[0, 4:] = True
    for mask in (None, torch.randn(5, 7) > 1, torch.randn(12, 5, 7) > 1, torch.randn(5, 7)):
        hidden = None if mask is None or mask.is_floating_point() else padding
        for weights, average in ((True, True), (True, False), (False, True)):
            options = {"key_padding_mask": hidden, "attn_mask": mask, "need_weights": weights}
            torch.manual_seed(2)
            want = plain(query, key, value, average_attn_weights=average, **options)
            torch.manual_seed(2)
            got = ours(query, key, value, average_attn_weights=average, **options)
            assert torch.equal(got[0], want[0]) or torch.equal(got[0].isnan(), want[0].isnan())
            assert (got[1] is None) == (want[1] is None)
            if got[1] is not None:
                assert_values_equal(got[1], want[1])
    if first or settings.get("dropout"):
        return
    one = ours(query[:, 0], key[:, 0], value[:, 0])
    assert all(map(torch.equal, one, plain(query[:, 0], key[:, 0], value[:, 0])))


def test_attention_refuses_what_it_cannot_compute():
    ours = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    ours.out_proj = gs.nn.QLinear(32, 32, spec=SPEC)
    call_children(ours)
    x = inputs()[0]
    with pytest.raises(RuntimeError, match="is_causal without attn_mask"):
        ours(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match="attn_mask of shape"):
        ours(x, x, x, attn_mask=torch.zeros(4, 5))
    nested = torch.nested.nested_tensor([x[0], x[1, :3]])
    with pytest.raises(gs.ShapeError, match="Pad the input"):
        ours(nested, nested, nested)


@pytest.mark.parametrize("kind", ["QLinear", "MXLinear", "QuantLinear"])
def test_compiled_encoders_compute_ours(kind):
    torch._dynamo.reset()
    x, padding = inputs()
    model = nn.TransformerEncoder(encoder_layer(), 1).eval()
    layer = model.layers[0]
    layer.linear1, layer.self_attn.out_proj = LINEAR[kind](layer.linear1), LINEAR[kind](layer.self_attn.out_proj)
    want = call_children(model).eval()(x, src_key_padding_mask=padding).detach()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, src_key_padding_mask=padding), want)


def test_calibration_sees_the_data_inside_an_encoder():
    x, padding = inputs()
    model = nn.TransformerEncoder(encoder_layer(), 2).eval()
    names = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    gs.tensor_quant.quantize_(model, {"*input_quantizer": Q8, "*weight_quantizer": Q8})
    assert [name for name, m in model.named_modules() if isinstance(m, gs.tensor_quant.QuantLayer)] == names
    gs.tensor_quant.calibrate(model, [{"src": x, "src_key_padding_mask": padding}])
    for name in names:
        assert model.get_submodule(name).input_quantizer.amax > 0
    in_every_mode(model, x, src_key_padding_mask=padding)


def test_hooks_that_round_are_called_on_the_output_layer():
    ours = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    qtorch.auto_low.lower(ours, ["linear"], qtorch.FloatingPoint(4, 3), forward_rounding="nearest")
    x = inputs()[0]
    out = in_every_mode(ours, x, x, x)
    assert torch.equal(out, gs.quantize(out, "e4m3b8"))


def test_plain_models_run_the_forward_of_pytorch(monkeypatch):
    x, padding = inputs()
    model = nn.TransformerEncoder(encoder_layer(), 1).eval()
    found = []
    real = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *a: found.append(1) or real(*a))
    with torch.no_grad():
        out = model(x, src_key_padding_mask=padding)
        assert found == [1] and out[1, 3:].eq(0).all()  # packed, as PyTorch does
        model.layers[0].linear1 = LINEAR["QLinear"](model.layers[0].linear1)
        call_children(model)
        assert model(x, src_key_padding_mask=padding)[1, 3:].ne(0).any() and found == [1]


def test_torchscript_still_compiles_plain_models():
    model = encoder_layer()
    with torch.no_grad():
        assert torch.equal(torch.jit.script(model)(inputs()[0]), model(inputs()[0]))


def test_every_layer_of_the_package_has_the_mark():
    for found in pkgutil.walk_packages(gs.__path__, "gemmsim."):
        if "__main__" not in found.name and "triton" not in found.name:
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:  # an optional package
                assert not error.name.startswith("gemmsim"), error
    waiting, classes = [nn.Module], set()
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind not in classes:
                classes.add(kind)
                waiting.append(kind)
    ours = {kind for kind in classes if kind.__module__.startswith("gemmsim.")}
    whole = ("gemmsim.study.language_model", "gemmsim.study.recipe_training")  # whole models, and plain layers
    models = {kind for kind in ours if kind.__module__ in whole}
    mixins = {kind for kind in ours if kind.__name__.startswith("_")}
    assert len(ours) > 80
    assert [kind for kind in ours - models - mixins if not issubclass(kind, Emulated)] == []
