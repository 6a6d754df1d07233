"""Observers change nothing: bits, gradients, strides and random streams are those of the run that nobody watches."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from support.long import long_but
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import gemmsim as gs

pytestmark = pytest.mark.filterwarnings("ignore")

#: Rules that leave some modules to PyTorch and say something for the path "" and for all others.
HALF = [("*0*", None), ("*", ":bf16")]
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 60}
_ATTENTION = {**_SIZES, "num_attention_heads": 4, "intermediate_size": 48}
#: Class -> what makes it small, and its input.
MODELS = {
    "LlamaModel": ({**_ATTENTION, "num_key_value_heads": 2}, "tokens"),  # SiLU, grouped queries
    "Qwen2MoeModel": (
        {**_ATTENTION, "num_key_value_heads": 2, "num_experts": 4, "moe_intermediate_size": 16},
        "tokens",
    ),  # experts
    "GemmaModel": ({**_ATTENTION, "num_key_value_heads": 2, "head_dim": 8}, "tokens"),  # GELU by tanh
    "BertModel": (_ATTENTION, "tokens"),
    "GPT2Model": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60}, "tokens"),
    "OPTModel": ({**_ATTENTION, "ffn_dim": 48, "word_embed_proj_dim": 32}, "tokens"),
    "FNetModel": ({**_SIZES, "intermediate_size": 48}, "tokens"),  # Fourier transforms
    "MambaModel": ({**_SIZES, "state_size": 8}, "tokens"),  # state space
    "Mamba2Model": (
        {**_SIZES, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
        "tokens",
    ),
    "RwkvModel": ({**_SIZES, "attention_hidden_size": 32}, "tokens"),  # recurrent
    "ViTModel": ({**_ATTENTION, "image_size": 16, "patch_size": 8}, "image"),
    "ConvNextModel": ({"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "image_size": 32}, "image"),
    "ResNetModel": ({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, "image"),
    "SwinModel": ({"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]}, "image"),
}


#: In every run; the others in the long one.
SHORT = ("LlamaModel", "Qwen2MoeModel", "RwkvModel", "SwinModel")


class Handed(TorchDispatchMode):
    """Hands every operator on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def watchers(folder):
    """Makers of observers, by name."""
    return {
        "audit": gs.audit,
        "values": lambda: gs.audit(values=True),
        "capture": lambda: gs.capture(max_rows=1, to=folder / "operands.safetensors"),
        "handed": Handed,
    }


def model_and_input(name):
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    options, kind = MODELS[name]
    made = getattr(transformers, name)
    torch.manual_seed(0)
    model = made(made.config_class(**options)).train()
    side = 32 if options.get("image_size") != 16 else 16
    given = torch.randint(0, 60, (2, 8)) if kind == "tokens" else torch.randn(2, 3, side, side)
    return model, given


def ran(model, given, config, watch):
    """First output, gradients of all parameters and the state of torch's generator after a training step."""
    torch.manual_seed(1)
    model.zero_grad()
    with gs.emulate(config, step=0), watch:
        out = model(given)
        out = out if isinstance(out, torch.Tensor) else out[0]
        out.float().square().mean().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"": out.detach(), **{name: g.clone(memory_format=torch.preserve_format) for name, g in grads.items()}}


def agree(plain, watched):
    assert plain.keys() == watched.keys()
    for name, tensor in plain.items():
        assert torch.equal(tensor, watched[name]), name
        assert tensor.stride() == watched[name].stride(), name


@pytest.mark.parametrize("watcher", ["audit", "capture", "handed"])
@pytest.mark.parametrize("name", **long_but({name: name for name in MODELS}, *SHORT))
def test_models_compute_the_same_watched_or_not(name, watcher, tmp_path):
    model, given = model_and_input(name)
    plain = ran(model, given, HALF, nullcontext())
    state = torch.get_rng_state()
    agree(plain, ran(model, given, HALF, watchers(tmp_path)[watcher]()))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["LlamaModel", pytest.param("MambaModel", marks=pytest.mark.long), "ConvNextModel"])
def test_native_and_random_runs_are_the_same_watched_or_not(name, tmp_path):
    model, given = model_and_input(name)
    for config in (None, [("*0*", None), ("*", "e4m3 : bf16/sr")]):
        plain = ran(model, given, config, nullcontext())
        for watch in watchers(tmp_path).values():
            if config is not None or watch is not Handed:  # PyTorch's formulas ask for modes like this one themselves
                agree(plain, ran(model, given, config, watch()))


def test_the_backward_pass_of_a_native_module_stays_native():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4)), torch.randn(8, 64)
    rules = [("0", None), ("*", ":bf16")]
    plain = ran(net, x, rules, nullcontext())
    for watch in (gs.audit(), FlopCounterMode(display=False), Handed()):
        agree(plain, ran(net, x, rules, watch))
    with gs.emulate(rules), gs.audit() as report:
        net(x).sum().backward()
    specs = {(record.module, record.role): record.spec for record in report}
    assert specs["0", "wgrad"] == "native" != specs["1", "wgrad"]


def test_linear_algebra_and_its_gradients_stay_native():
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def gradient(watch):
        with gs.emulate(":bf16"), watch:
            return torch.autograd.grad(torch.linalg.svdvals(x).sum(), x)[0]

    want = torch.autograd.grad(torch.linalg.svdvals(x).sum(), x)[0]
    for watch in (nullcontext(), gs.audit(), FlopCounterMode(display=False)):
        # The formula multiplies otherwise where a mode is in force: a few units of float32.
        torch.testing.assert_close(gradient(watch), want, rtol=1e-5, atol=1e-6)


CALLS = {
    "silu": F.silu,
    "mish": F.mish,
    "prod": lambda x: x.view(10, 100).prod(1),
    "channel_shuffle": lambda x: torch.channel_shuffle(x.view(1, 10, 10, 10), 5),
    "masked_fill": lambda x: x.masked_fill(x.detach() > 0, x[0]),
    "cumprod": lambda x: x.view(10, 100).cumprod(1),
    "dropout": lambda x: F.dropout(x, 0.5),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "max": lambda x: x.view(10, 100).max(1).values,
    "layer_norm": lambda x: F.layer_norm(x.view(10, 100), (100,)),
    "interpolate": lambda x: F.interpolate(x.view(1, 10, 10, 10), scale_factor=2, mode="bilinear"),
    "lstm": lambda x: torch.lstm(
        x.view(10, 10, 10), (torch.zeros(1, 10, 10),) * 2, [torch.ones(40, 10) / 20] * 2, False, 1, 0.0, False, False, False
    )[0],
}  # fmt: skip


@pytest.mark.parametrize("watcher", ["audit", "values"])
@pytest.mark.parametrize("name", CALLS)
def test_operators_compute_the_same_watched_or_not(name, watcher, tmp_path):
    def run(watch):
        torch.manual_seed(0)
        x = torch.randn(1000, requires_grad=True)
        with watch:
            out = CALLS[name](x)
            grad = torch.randn(out.shape)
            return [out.detach(), *torch.autograd.grad(out, x, grad), torch.get_rng_state()]

    for plain, watched in zip(run(nullcontext()), run(watchers(tmp_path)[watcher]()), strict=True):
        assert torch.equal(plain, watched) and plain.stride() == watched.stride()


ALGEBRA = {
    "svdvals": lambda x: torch.linalg.svdvals(x.view(10, 100)),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x[:900].view(30, 30)),
    "cond": lambda x: torch.linalg.cond(x[:900].view(30, 30)),
    "norm": lambda x: torch.linalg.norm(x.view(10, 100), ord="nuc"),
    "hfft": lambda x: torch.fft.hfft2(x.view(10, 100)),
}


@pytest.mark.parametrize("watcher", ["audit", "values"])
@pytest.mark.parametrize("name", CALLS)
def test_operators_compute_the_same_in_a_context(name, watcher, tmp_path):
    def run(watch):
        torch.manual_seed(0)
        x = torch.randn(1000, requires_grad=True)
        with gs.emulate(":e5m9"), watch:
            out = CALLS[name](x)
            out.backward(torch.randn(out.shape))
            return [out.detach(), x.grad, *torch.autograd.grad(CALLS[name](x).sum(), x)]

    for plain, watched in zip(run(nullcontext()), run(watchers(tmp_path)[watcher]()), strict=True):
        assert torch.equal(plain, watched) and plain.stride() == watched.stride()


@pytest.mark.parametrize("name", [*CALLS, *ALGEBRA])
def test_inference_computes_the_same_watched_or_not(name):
    def run(watch):
        torch.manual_seed(0)
        x = torch.randn(1000)
        with torch.inference_mode(), watch:
            return [{**CALLS, **ALGEBRA}[name](x), torch.get_rng_state()]

    for plain, watched in zip(run(nullcontext()), run(gs.audit()), strict=True):
        assert torch.equal(plain, watched) and plain.stride() == watched.stride()


def test_functions_whose_context_has_a_name_run_under_an_audit():
    """``ctx`` is the node of the graph, so that attributes of it hide the node's own."""

    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.name = "mine"
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    x = torch.randn(3, requires_grad=True)
    with gs.audit():
        (gs.functional.qtanh(Named.apply(x), "e5m10", "e5m10")).prod().backward()
    watched, x.grad = x.grad, None
    gs.functional.qtanh(Named.apply(x), "e5m10", "e5m10").prod().backward()
    assert torch.equal(watched, x.grad)


def test_torchscript_stays_native_when_it_is_watched():
    torch.manual_seed(0)
    script, x = torch.jit.script(nn.Linear(32, 8)), torch.randn(4, 32)
    want = script(x)
    for watch in (nullcontext(), gs.audit()):
        with gs.emulate(":bf16"), watch:
            assert torch.equal(script(x), want)
