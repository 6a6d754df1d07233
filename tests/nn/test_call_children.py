"""Emulated layers inside PyTorch's transformer modules: called, or refused with words, and PyTorch left as it is."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.modules import module as every_module

import gemmsim as gs
from gemmsim.compat import qtorch, torchao, torchmx
from gemmsim.compat.modelopt.torch import quantization as mtq
from gemmsim.nn import Emulated, NotCalledError, QLinear, call_children

SPEC = "e4m3 : e5m10"
Q8 = {"num_bits": 8}
MXFP8 = torchmx.config.MXConfig("float8_e4m3", 32)
#: The methods that these modules would have to have replaced, as they were when PyTorch was loaded.
CLASSES = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)
METHODS = {kind: dict(vars(kind)) for kind in CLASSES}


@pytest.fixture(autouse=True)
def pytorch_stays_as_it_is():
    yield
    for kind, methods in METHODS.items():
        assert dict(vars(kind)) == methods
    assert not every_module._global_module_registration_hooks and not every_module._has_any_global_hook()


def data(*shape):
    return torch.randn(*(shape or (2, 5, 32)), generator=torch.Generator().manual_seed(1))


def attention(**options):
    torch.manual_seed(0)
    return nn.MultiheadAttention(32, 4, **{"batch_first": True, **options}).eval()


def encoder(layers=2, **options):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, **options}
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 32, **options), layers).eval()


def with_output(made=None):
    """Attention with a layer of ours as its ``out_proj``, put in by hand."""
    found = attention()
    found.out_proj = QLinear(32, 32, spec=SPEC) if made is None else made
    return found


def by_hand(x, mha):
    """What PyTorch computes with an ``out_proj`` that changes nothing, and then the layer."""
    rows = x.transpose(0, 1)
    own = (mha.in_proj_weight, mha.in_proj_bias, None, None, False, 0.0, torch.eye(32), None)
    joined = nn.functional.multi_head_attention_forward(rows, rows, rows, 32, 4, *own)[0]
    return mha.out_proj(joined.flatten(0, 1)).unflatten(0, joined.shape[:2]).transpose(0, 1)


MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


# The hook


def marks(module):
    return [hook for hook in module._forward_pre_hooks.values() if hook.__module__ == "gemmsim.nn.emulated_marker"]


class Doubling(Emulated, nn.Linear):
    """A layer of somebody else's."""

    def forward(self, x):
        return 2 * super().forward(x)


MADE = {
    "constructed": lambda: QLinear(32, 32),
    "lazy, before its first input": lambda: gs.nn.QLazyLinear(32),
    "of a float layer": lambda: QLinear.from_float(nn.Linear(32, 32), SPEC),
    "of a float row module": lambda: gs.nn.QLayerNorm.from_float(nn.LayerNorm(32)),
    "quantiser": lambda: gs.nn.Quantizer("e4m3"),
    "somebody's": lambda: Doubling(32, 32),
    "of a class that was assigned": lambda: torchao.MXLinear.from_float(nn.Linear(32, 32), torch.float8_e4m3fn, 32),
}


@pytest.mark.parametrize("kind", MADE)
def test_every_emulated_module_has_one_hook_that_does_nothing(kind):
    module = MADE[kind]()
    assert len(marks(module)) == 1
    twins = (
        [copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(copy.deepcopy(module)))]
        if (kind != "somebody's")
        else [copy.copy(module), copy.deepcopy(module)]
    )
    for one in (module, *twins):
        assert len(marks(one)) == 1 and marks(one)[0](one, ()) is None
        call_children(one)
        assert len(marks(one)) == 1


def test_files_from_before_the_hook_get_it():
    module = QLinear(32, 32)
    state = {**module.__dict__, "_forward_pre_hooks": OrderedDict()}
    found = QLinear.__new__(QLinear)
    found.__setstate__(state)
    assert len(marks(found)) == 1


def test_a_module_whose_class_is_assigned_gets_the_hook_and_keeps_its_own():
    module, calls = nn.Linear(32, 32), []
    handle = module.register_forward_pre_hook(lambda *args: calls.append("hook"))
    module.__class__ = Doubling
    assert not marks(module)
    call_children(module)
    module(data(1, 32))
    handle.remove()
    module(data(1, 32))
    assert calls == ["hook"] and len(marks(module)) == 1


HOOKS = ("forward_pre", "forward", "full_backward_pre", "full_backward")


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("of_all", [False, True])
def test_other_hooks_are_called_as_ever(of_all, kind):
    module, calls, x = QLinear(4, 4), [], data(2, 4).requires_grad_()
    add = getattr(every_module, f"register_module_{kind}_hook") if of_all else getattr(module, f"register_{kind}_hook")
    handle = add(lambda *args: calls.append(1))
    try:
        module(x).sum().backward()
    finally:
        handle.remove()
    module(x).sum().backward()
    assert calls == [1]


def test_hooks_that_change_inputs_and_results():
    module, x = QLinear(4, 4), data(2, 4)
    want = 3 * module(2 * x)
    module.register_forward_pre_hook(lambda module, args: (2 * args[0],))
    module.register_forward_hook(lambda module, args, result: 3 * result)
    assert torch.equal(module(x), want)


def test_constructors_are_shown_as_pytorchs():
    assert str(inspect.signature(Doubling)) == str(inspect.signature(nn.Linear))
    assert "spec" in inspect.signature(QLinear).parameters

    class Own(Doubling):
        def __init__(self, size):
            super().__init__(size, size)

    assert list(inspect.signature(Own).parameters) == ["size"]
    assert list(inspect.signature(Doubling(2, 2).forward).parameters) == ["x"]


PLACES = {
    "linear1": lambda layer: QLinear.from_float(layer.linear1, SPEC),
    "linear2": lambda layer: Doubling(32, 32),
    "norm1": lambda layer: gs.nn.QLayerNorm.from_float(layer.norm1, "e5m10"),
    "dropout2": lambda layer: gs.nn.Quantizer("e4m3"),
    "self_attn": lambda layer: gs.nn.QMultiheadAttention.from_float(layer.self_attn, projection=SPEC),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", ["no_grad", "inference"])
def test_a_layer_put_into_an_encoder_layer_by_hand_is_called(mode, place, monkeypatch):
    layer = encoder(1).layers[0]
    fused, real = [], torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *a: fused.append(1) or real(*a))
    called = []
    with MODES[mode]():
        layer(data())
        assert fused == [1]
        layer.set_submodule(place, PLACES[place](layer))
        layer.get_submodule(place).register_forward_hook(lambda *args: called.append(1))
        layer(data())
    assert fused == [1] and called == [1]


# An ``out_proj`` that nobody would call


@pytest.mark.parametrize("make", [None, lambda: Doubling(32, 32), lambda: gs.mx.MXLinear.from_float(nn.Linear(32, 32))])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False])
def test_attention_does_not_multiply_with_the_weight_of_our_layer(training, mode, make):
    mha, x = with_output(make and make()).train(training), data()
    name = type(mha.out_proj).__name__
    with MODES[mode](), pytest.raises(NotCalledError, match=rf"a {name}; allowed: .*\n  Try gemmsim.nn.call_children"):
        mha(x, x, x)
    inside = nn.TransformerEncoderLayer(32, 4, 32, batch_first=True).train(training)
    inside.self_attn = mha
    with MODES[mode](), pytest.raises(NotCalledError):
        inside(x)
    with gs.emulate(":bf16"), pytest.raises(NotCalledError):
        mha(x, x, x)
    with pytest.raises(NotCalledError):
        gs.audit(mha, x, x, x)
    call_children(inside)
    with MODES[mode]():
        inside(x)
        assert torch.equal(mha(x, x, x)[0].detach(), by_hand(x, mha).detach())


def test_a_parametrised_weight_is_refused_as_well():
    mha, x = with_output(), data()
    nn.utils.parametrize.register_parametrization(mha.out_proj, "weight", nn.Identity())
    with pytest.raises(NotCalledError):
        mha(x, x, x)


def test_compiled_attention_refuses_it_as_well():
    torch._dynamo.reset()
    mha, x = with_output(), data()
    with pytest.raises(NotCalledError, match="call_children"):
        torch.compile(mha, backend="eager")(x, x, x)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="call_children"):
        torch.compile(mha, backend="eager", fullgraph=True)(x, x, x)
    torch._dynamo.reset()
    call_children(mha)
    compiled = torch.compile(mha, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x, x, x)[0], by_hand(x, mha))


class OurPReLU(Emulated, nn.PReLU):
    """Its weight is read in the file in which ``nn.MultiheadAttention`` is."""


def test_everybody_else_may_read_the_weight():
    layer = QLinear(4, 4)
    assert layer.weight is layer._parameters["weight"] and type(layer.weight) is nn.Parameter
    slopes, x = OurPReLU(), data()
    want = nn.PReLU()(x)
    assert torch.equal(slopes(x), want)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(slopes, backend="eager", fullgraph=True)(x), want)
    with pytest.raises(AttributeError, match="has no attribute 'weight'"):
        gs.nn.Quantizer("e4m3").weight  # noqa: B018


# Nested tensors


@pytest.mark.parametrize("at", [0, 1])
def test_layers_refuse_the_nested_tensors_of_an_encoder_with_words(at):
    model, x = encoder(), data()
    model.layers[at].linear1 = QLinear.from_float(model.layers[at].linear1, SPEC)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    want = model(x, src_key_padding_mask=hidden).detach()
    with torch.no_grad():
        with pytest.raises(gs.ShapeError, match=r"QLinear of a nested tensor.*\n  Try gemmsim.nn.call_children"):
            model(x, src_key_padding_mask=hidden)
        call_children(model)
        assert torch.equal(model(x, src_key_padding_mask=hidden), model.train()(x, src_key_padding_mask=hidden))
        assert torch.allclose(model(x, src_key_padding_mask=hidden), want, atol=1e-2)


def test_errors_of_other_inputs_are_as_ever():
    with pytest.raises(gs.ShapeError, match=r"qlinear|K|inner"):
        QLinear(4, 4, spec=SPEC)(data(2, 3))
    nested = torch.nested.nested_tensor([data(3, 4), data(2, 4)])
    assert gs.nn.QGELU()(nested).is_nested, "what PyTorch computes itself stays"


# call_children


def test_modules_without_emulated_layers_stay_as_they_are():
    model = nn.ModuleDict({"one": encoder(), "two": encoder(), "alone": attention(), "ours": QLinear(32, 32)})
    model["one"].layers[1].linear1 = QLinear(32, 32)
    assert call_children(model) is model and call_children(model) is model
    kinds = [type(m.self_attn) is nn.MultiheadAttention for name in ("one", "two") for m in model[name].layers]
    assert kinds == [False, False, True, True] and type(model["alone"]) is nn.MultiheadAttention
    assert [model[name].use_nested_tensor for name in ("one", "two")] == [False, True]
    assert [len(m._forward_pre_hooks) for name in ("one", "two") for m in model[name].layers] == [1, 1, 0, 0]
    assert all(len(m._forward_pre_hooks) == 1 for m in model["one"].layers)


def test_layers_that_were_taken_out_again():
    model = encoder(1)
    model.layers[0].linear1, plain = QLinear(32, 32), model.layers[0].linear1
    call_children(model)
    model.layers[0].linear1 = plain
    other = call_children(nn.TransformerEncoder(model.layers[0], 1))
    assert other.use_nested_tensor, "the hook of a layer that has had one inside says nothing"


def test_attention_of_ours_needs_nothing():
    layer = encoder(1).layers[0]
    layer.self_attn = ours = gs.nn.QMultiheadAttention(32, 4, batch_first=True)
    ours.out_proj = QLinear(32, 32, spec=SPEC)
    assert type(call_children(layer).self_attn) is gs.nn.QMultiheadAttention


def test_an_attention_stays_what_it_was_but_for_its_forward():
    mha, before = with_output(), attention()
    before.out_proj = mha.out_proj
    keys, shown, parameters = list(mha.state_dict()), repr(before), [id(p) for p in mha.parameters()]
    kind = type(call_children(mha))
    assert isinstance(mha, nn.MultiheadAttention) and type(call_children(mha)) is kind
    names = (kind.__name__, kind.__qualname__, kind.__module__)
    assert names == ("MultiheadAttention", "MultiheadAttention", nn.MultiheadAttention.__module__)
    assert repr(mha) == shown and list(mha.state_dict()) == keys and [id(p) for p in mha.parameters()] == parameters
    plain = attention()
    assert plain.load_state_dict(mha.state_dict()) and mha.load_state_dict(plain.state_dict())
    want = by_hand(data(), mha)
    buffer = io.BytesIO()
    torch.save(mha, buffer)
    buffer.seek(0)
    twins = copy.copy(mha), copy.deepcopy(mha), pickle.loads(pickle.dumps(mha)), torch.load(buffer, weights_only=False)
    for twin in twins:
        assert type(twin) is kind and torch.equal(twin(*[data()] * 3)[0], want)
    assert call_children(with_output()).forward.__func__ is mha.forward.__func__


def test_pickles_are_read_in_another_process(tmp_path):
    mha = call_children(with_output())
    torch.save((mha, data(), mha(*[data()] * 3)[0]), tmp_path / "mha.pt")
    code = (
        "import sys, torch; m, x, y = torch.load(sys.argv[1], weights_only=False); print(torch.equal(m(x, x, x)[0], y))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "mha.pt"], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


class Noting(nn.MultiheadAttention):
    """Somebody's, with a forward around PyTorch's."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = 0

    def forward(self, *args, **kwargs):
        self.calls += 1
        return super().forward(*args, **kwargs)


def test_a_subclass_keeps_its_own_forward():
    mha = Noting(32, 4, batch_first=True).eval()
    mha.out_proj = QLinear(32, 32, spec=SPEC)
    assert isinstance(call_children(mha), Noting) and type(mha).__name__ == "Noting"
    for twin in (mha, copy.deepcopy(mha), pickle.loads(pickle.dumps(mha))):
        assert torch.equal(twin(*[data()] * 3)[0], by_hand(data(), twin)) and twin.calls == 1


def test_a_parametrised_attention_is_called_too():
    mha, x = with_output(), data()
    nn.utils.parametrize.register_parametrization(mha, "in_proj_weight", gs.nn.Quantizer("e4m3"))
    call_children(mha)
    want = by_hand(x, mha)
    assert torch.equal(mha(x, x, x)[0], want) and torch.equal(copy.deepcopy(mha)(x, x, x)[0], want)
    nn.utils.parametrize.remove_parametrizations(mha, "in_proj_weight")
    assert type(mha) is type(call_children(with_output())) and torch.equal(mha(x, x, x)[0], want)


def test_a_converted_attention_keeps_both():
    mha, x = call_children(with_output(Doubling(32, 32))), data()
    with gs.emulate(":bf16"):
        want = mha(x, x, x)[0]
    gs.convert(mha, ":bf16")
    assert type(mha).__name__ == "MultiheadAttention" and not torch.equal(want, by_hand(x, mha))
    for twin in (mha, copy.deepcopy(mha)):
        assert torch.equal(twin(x, x, x)[0], want)
    gs.emulation.undo(mha)
    assert torch.equal(mha(x, x, x)[0], by_hand(x, mha))
    ours = gs.convert(call_children(with_output()), ":bf16")
    twin = pickle.loads(pickle.dumps(ours))
    assert type(twin) is type(ours) and torch.equal(twin(x, x, x)[0], ours(x, x, x)[0])


def test_an_attention_whose_layer_is_plain_again_computes_pytorchs_bits():
    mha, x = call_children(with_output()), data()
    plain = attention()
    mha.load_state_dict(plain.state_dict())
    mha.out_proj = plain.out_proj
    assert torch.equal(mha(x, x, x)[0], plain.train()(x, x, x)[0])


def test_what_is_no_module_is_refused():
    with pytest.raises(gs.DTypeError, match=r"call_children: model=3.*\n  Give the model"):
        call_children(3)


# Converters prepare what they convert


def torchao_exchanged(model):
    exchange = torchao.layers.replace_with_custom_fn_if_matches_filter
    exchange(model, lambda old: QLinear.from_float(old, SPEC), lambda module, name: type(module) in LINEAR)


def lowered(model):
    qtorch.auto_low.lower(model, ["linear"], qtorch.FloatingPoint(4, 3), forward_rounding="nearest")


LINEAR = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
E4M3 = torch.float8_e4m3fn
CONVERTERS = {
    "mx.swap_linear_with_mx_linear": lambda m: gs.mx.swap_linear_with_mx_linear(m, "mxfp8_e4m3"),
    "mx.swap_linear_with_mx_inference_linear": lambda m: gs.mx.swap_linear_with_mx_inference_linear(m, "mxfp8_e4m3"),
    "mx.quantize_": lambda m: gs.mx.quantize_(m, gs.mx.MXLinearConfig("mxfp8_e4m3")),
    "tensor_quant.quantize_": lambda m: gs.tensor_quant.quantize_(m, {"*weight_quantizer": {"num_bits": 4}}),
    "torchao.swap_linear_with_mx_linear": lambda m: torchao.swap_linear_with_mx_linear(m, E4M3, 32),
    "torchao.swap_linear_with_mx_inference_linear": lambda m: torchao.swap_linear_with_mx_inference_linear(m, E4M3, 32),
    "torchao.quantize_": lambda m: torchao.quantize_(m, torchao.MXLinearConfig()),
    "torchao.replace_with_custom_fn_if_matches_filter": torchao_exchanged,
    "torchmx.quantize_linear_": lambda m: torchmx.quant_api.quantize_linear_(
        m, torchmx.config.QLinearConfig(MXFP8, MXFP8)
    ),
    "modelopt.replace_quant_module": mtq.replace_quant_module,
    "qtorch.lower": lowered,
}


@pytest.mark.parametrize("name", CONVERTERS)
def test_models_of_converters_compute_the_same_in_every_mode(name):
    model, x = nn.ModuleDict({"encoder": encoder(), "attend": attention()}), data()
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    native = model["encoder"].train()(x, src_key_padding_mask=hidden), model["attend"].train()(x, x, x)[0]
    CONVERTERS[name](model)

    def run():
        return model["encoder"](x, src_key_padding_mask=hidden).detach(), model["attend"](x, x, x)[0].detach()

    want = run()
    for mine, theirs in zip(want, native, strict=True):
        assert not torch.equal(mine, theirs)
    model.eval()
    for mode in MODES.values():
        with mode():
            assert all(map(torch.equal, run(), want))


def test_copies_of_converters_are_prepared():
    model, x = attention(), data()
    found = qtorch.auto_low.sequential_lower(model, ["linear"], qtorch.FloatingPoint(4, 3), forward_rounding="nearest")
    out = found(x, x, x)[0].detach()
    assert torch.equal(out, gs.quantize(out, "e4m3b8")) and type(model) is nn.MultiheadAttention
