"""``gemmsim.compat.torchao.float8``: layers with Hopper's sums, in models, compilers, checkpoints, processes."""

from __future__ import annotations

import copy
import dataclasses
import io
import logging
import pickle

import pytest
import torch
from support.float8_layers import E4M3, E5M2, RECIPES, assert_all_equal, configured, made, random, run
from support.processes import needs_processes, run_two_processes
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gemmsim as gs
from gemmsim.compat.torchao.float8 import (
    CastConfig,
    Float8GemmConfig,
    Float8Linear,
    Float8LinearConfig,
    ScalingType,
    convert_to_float8_training,
    float8_linear_utils,
    precompute_float8_dynamic_scale_for_fsdp,
)

RECIPE = pytest.mark.parametrize("recipe", RECIPES)
EMULATED = pytest.mark.parametrize("emulate", [True, False], ids=["emulated", "hopper"])


# Products with Hopper's sums


def cast_by_hand(x: Tensor, dim: int | None, power: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Elements and the scale, of ordinary numbers."""
    largest = x.double().abs().amax() if dim is None else x.double().abs().amax(dim, keepdim=True)
    scale = (torch.finfo(dtype).max / largest).float()
    scale = torch.exp2(torch.floor(torch.log2(scale))) if power else scale
    return (x.float() * scale).to(dtype), scale


def product_by_hand(a: Tensor, b: Tensor, recipe: str, name: str) -> Tensor:
    """``gs.scaled_mm`` of operands that were cast here; without fast accumulation the scales of rows come last."""
    if recipe == "rowwise_with_gw_hp" and name == "grad_weight":
        if a.dtype == torch.float32:
            return a @ b
        return gs.qmatmul(a, b, "bf16 : hw(hopper, wgmma, bf16)", out_dtype=a.dtype)
    rows, fast = recipe != "tensorwise", name == "output"
    whole_b = recipe == "rowwise_with_gw_hp" and name == "grad_input"
    grad = E5M2 if not rows and name != "output" else E4M3
    x, down_x = cast_by_hand(a, -1 if rows else None, rows, grad)
    y, down_y = cast_by_hand(b, 0 if rows and not whole_b else None, rows, E4M3)
    down_x, down_y = 1 / down_x, 1 / down_y
    x, y = x.contiguous(), y.t().contiguous().t()
    if not rows:
        return gs.scaled_mm(x, y, down_x, down_y, out_dtype=a.dtype, use_fast_accum=fast, split=1)
    if fast:
        options = {"out_dtype": torch.bfloat16, "use_fast_accum": True, "split": 1, "assume": "separate"}
        return gs.scaled_mm(x, y, down_x, down_y, **options).to(a.dtype)
    one = torch.tensor(1.0)
    sums = gs.scaled_mm(x, y, one, one, out_dtype=torch.bfloat16, split=1)
    return (sums * (down_x * down_y.expand(1, y.shape[1]))).bfloat16().to(a.dtype)


@RECIPE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_three_products_are_those_of_scaled_mm(recipe, dtype):
    x, w, g = (random(*size, seed=i, dtype=dtype) for i, size in enumerate(((160, 288), (48, 288), (160, 48))))
    layer = Float8Linear(288, 48, bias=False, config=configured(recipe))
    layer.weight = nn.Parameter(w)
    y, gx, gw = run(layer, x, g)
    assert torch.equal(y, product_by_hand(x, w.t(), recipe, "output"))
    assert torch.equal(gx, product_by_hand(g, w, recipe, "grad_input"))
    assert torch.equal(gw, product_by_hand(g.t(), x, recipe, "grad_weight"))
    emulated = Float8Linear(288, 48, bias=False, config=configured(recipe, emulate=True))
    emulated.weight = nn.Parameter(w)
    assert not torch.equal(run(emulated, x, g)[0], y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tensorwise_has_the_bits_of_the_recipe_of_gemmsim(dtype):
    x, w, g = (random(*size, seed=i, dtype=dtype) for i, size in enumerate(((150, 300), (40, 300), (150, 40))))
    layer = nn.Linear(300, 40, bias=False)
    layer.weight = nn.Parameter(w)
    ours = Float8Linear.from_float(layer, Float8LinearConfig())
    assert_all_equal(run(ours, x, g), run(gs.nn.QLinear.from_float(layer, gs.recipes.torchao_tensorwise()), x, g))


def test_fast_accumulation_of_a_gradient_can_be_asked_for():
    x, g = random(8, 512), random(8, 512, seed=2)
    layers = [
        Float8Linear(512, 512, bias=False, config=Float8LinearConfig(gemm_config_grad_input=Float8GemmConfig(fast)))
        for fast in (False, True)
    ]
    layers[1].weight = layers[0].weight
    (y, gx, gw), (y2, gx2, gw2) = run(layers[0], x, g), run(layers[1], x, g)
    assert torch.equal(y, y2) and torch.equal(gw, gw2) and not torch.equal(gx, gx2)


# Models


@RECIPE
@EMULATED
def test_copies_pickles_checkpoints_and_compiled_graphs_have_the_same_bits(recipe, emulate):
    model, x, g = made(recipe, emulate=emulate), random(8, 48), random(8, 16, seed=2)
    want = run(model, x, g)
    assert_all_equal(run(copy.deepcopy(model), x, g), want)
    assert_all_equal(run(pickle.loads(pickle.dumps(model)), x, g), want)

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    assert_all_equal(run(Again(), x, g), want)
    torch._dynamo.reset()
    assert_all_equal(run(torch.compile(model, fullgraph=True, backend="aot_eager"), x, g), want)


@pytest.mark.parametrize("recipe", ["rowwise"])
@EMULATED
def test_inductor_has_the_same_bits(recipe, emulate):
    """Without a bias, which PyTorch adds, and Inductor fuses with what comes after it."""
    torch._dynamo.reset()
    for dtype in (torch.float32, torch.bfloat16):
        model = made(recipe, dtype=dtype, bias=False, emulate=emulate)
        x, g = random(8, 48, dtype=dtype), random(8, 16, seed=2, dtype=dtype)
        assert_all_equal(run(torch.compile(model, fullgraph=True), x, g), run(model, x, g))


@EMULATED
def test_an_emulation_around_the_layer_changes_nothing(emulate):
    model, x = made("rowwise_with_gw_hp", dtype=torch.bfloat16, emulate=emulate), random(8, 48, dtype=torch.bfloat16)
    want = run(model, x)
    with gs.emulate(":e5m2"):
        assert_all_equal(run(model, x), want)


@EMULATED
def test_gradients_of_each_sample(emulate):
    """Under vmap a sample is a tensor of its own: its scales are, too."""
    layer, x = made("tensorwise", emulate=emulate)[0], random(3, 4, 48)
    found = torch.func.vmap(lambda one: torch.func.functional_call(layer, dict(layer.named_parameters()), (one,)))(x)
    assert torch.equal(found, torch.stack([layer(one) for one in x]))
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(given, one):
        return torch.func.functional_call(layer, given, (one,)).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    want = [torch.func.grad(loss)(parameters, one) for one in x]
    for name, got in gradients.items():
        assert torch.equal(got, torch.stack([one[name] for one in want]))


def test_parameters_keys_hooks_and_mode_stay():
    model = nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 8, bias=False)).eval()
    keys, parameters = list(model.state_dict()), list(model.parameters())
    model[1].weight.requires_grad_(False)
    seen = []
    model[0].register_forward_hook(lambda *args: seen.append(args))
    assert convert_to_float8_training(model) is model
    assert [type(layer) for layer in model] == [Float8Linear, Float8Linear]
    assert list(model.state_dict()) == keys and all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    model(torch.ones(2, 32))
    assert len(seen) == 1 and not model[0].training and not model[1].weight.requires_grad
    plain = nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 8, bias=False))
    plain.load_state_dict(model.state_dict())
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    model.load_state_dict(torch.load(buffer, weights_only=True))


class Outer(nn.Linear):
    """A linear layer with another inside."""

    def __init__(self):
        super().__init__(32, 32)
        self.inner = nn.Linear(32, 32)


def test_what_is_converted_and_what_is_left(caplog):
    odd = nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))
    own = nn.Linear(32, 32)
    own.forward = lambda x: x
    model = nn.ModuleDict(
        {
            "block": nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)),
            "odd": odd, "own": own, "outer": Outer(), "lazy": nn.LazyLinear(4), "conv": nn.Conv1d(1, 1, 1),
        }
    )  # fmt: skip
    asked = []
    with caplog.at_level(logging.INFO, "gemmsim"):
        convert_to_float8_training(model, module_filter_fn=lambda mod, name: asked.append(name) or name != "block.1")
    assert asked == ["block.0", "block.1", "odd", "own", "outer.inner", "outer", "lazy"]
    converted = [name for name, layer in model.named_modules() if isinstance(layer, Float8Linear)]
    assert converted == ["block.0", "outer.inner"]
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelno == logging.WARNING and text.startswith(
        "torchao.convert_to_float8_training: 2 converted, 6 left"
    )
    lines = {line.split()[0]: line for line in text.splitlines()[1:]}
    reasons = {"block.1": "module_filter_fn", "odd": "parametrised", "own": "its own forward", "outer": "inside"}
    for name, words in (reasons | {"lazy": "no size", "conv": "this converter has no such layer"}).items():
        assert words in lines[name]


def test_a_model_that_is_a_linear_layer(caplog):
    layer = nn.Linear(32, 16)
    with caplog.at_level(logging.INFO, "gemmsim"):
        found = convert_to_float8_training(layer)
    assert isinstance(found, Float8Linear) and type(layer) is nn.Linear and found.weight is layer.weight
    assert "(the model)  Linear -> Float8Linear" in caplog.records[0].getMessage()
    assert convert_to_float8_training(layer, module_filter_fn=lambda mod, name: bool(name)) is layer
    again = convert_to_float8_training(found, config=configured("rowwise"))
    assert again.config == configured("rowwise") and again.weight is layer.weight
    with pytest.raises(AssertionError, match="modules inside") as error:
        convert_to_float8_training(Outer())
    assert isinstance(error.value, gs.ShapeError)
    for bad in (None, "model"):
        with pytest.raises(TypeError, match="allowed: a module"):
            convert_to_float8_training(bad)


def test_an_error_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))

    def fail(layer):
        if layer is model[1]:
            raise ValueError("not this one")
        return Float8Linear.from_float(layer)

    with pytest.raises(ValueError, match="^1: not this one"):
        float8_linear_utils.swap_linear_layers(model, fail)
    assert [type(layer) for layer in model] == [nn.Linear, nn.Linear]


def test_attention_calls_its_converted_projection():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    convert_to_float8_training(model, config=configured("rowwise"))
    x = random(2, 5, 32)
    want = model(x)
    with torch.no_grad():
        assert torch.equal(model.eval()(x), want)
    assert isinstance(model.self_attn.out_proj, Float8Linear)


WORKER = """
import copy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from gemmsim.compat.torchao import float8
mesh = init_device_mesh("cpu", (2,))
for recipe, gathered in (("tensorwise", True), ("rowwise", False)):
    config = float8.Float8LinearConfig.from_recipe_name(recipe)
    if gathered:
        config = float8.Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6))
    net = float8.convert_to_float8_training(net, config=config)
    alone = copy.deepcopy(net)
    for module in (net[0], net[2], net):
        fully_shard(module, mesh=mesh)
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(rank))
    for step in range(2):
        for model in (net, alone):
            model.zero_grad()
            y = model(x)
            y.square().sum().backward()
            want = y if model is net else want
            assert torch.equal(y, want)
        optimizers = [torch.optim.SGD(model.parameters(), 0.125) for model in (net, alone)]
        for parameter in alone.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
        for ours, theirs in zip(net.parameters(), alone.parameters()):
            assert torch.equal(ours.grad.full_tensor(), theirs.grad)
        for optimizer in optimizers:
            optimizer.step()
        float8.precompute_float8_dynamic_scale_for_fsdp(net)
    columns = parallelize_module(copy.deepcopy(alone), mesh, {"0": ColwiseParallel(output_layouts=Replicate())})
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(5))
    assert torch.equal(columns(x), alone(x))
x = torch.tensor([1.0 + rank, -0.5])
assert float8.float8_utils.tensor_to_amax(x, reduce_amax=True) == 2.0
"""


@needs_processes
def test_sharded_weights_of_two_processes(tmp_path):
    run_two_processes(WORKER, tmp_path)


def test_precomputing_scales_checks_and_does_nothing():
    model = made("tensorwise", enable_fsdp_float8_all_gather=True)
    before = copy.deepcopy(model.state_dict())
    assert precompute_float8_dynamic_scale_for_fsdp(model) is None
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    cast = CastConfig(target_dtype=E5M2)
    other = Float8LinearConfig(cast_config_weight=cast, enable_fsdp_float8_all_gather=True)
    model.append(Float8Linear(16, 16, config=other))
    with pytest.raises(ValueError, match="one float8 dtype"):
        precompute_float8_dynamic_scale_for_fsdp(model)
    with pytest.raises(TypeError, match="allowed: a module"):
        precompute_float8_dynamic_scale_for_fsdp(model.state_dict())


# Inputs


@RECIPE
@EMULATED
def test_shapes(recipe, emulate):
    layer = made(recipe, emulate=emulate, sizes=(30, 7, 16))[0]
    x = random(2, 3, 30)
    want = layer(x.reshape(6, 30))
    assert torch.equal(layer(x), want.reshape(2, 3, 7))
    assert torch.equal(layer(x.mT.contiguous().mT), want.reshape(2, 3, 7))
    one = random(30)
    assert torch.equal(layer(one), layer(one[None])[0]) and layer(one).shape == (7,)
    empty = torch.zeros(0, 30, requires_grad=True)
    y = layer(empty)
    y.sum().backward()
    assert y.shape == (0, 7) and empty.grad.shape == (0, 30) and not layer.weight.grad.any()
    none = Float8Linear.from_float(nn.Linear(0, 4), layer.config)
    assert torch.equal(none(torch.zeros(3, 0)), none.bias.expand(3, 4))
    for bad in (random(3, 29), torch.tensor(1.0)):
        with pytest.raises(AssertionError, match="allowed: inputs") as error:
            layer(bad)
        assert isinstance(error.value, gs.ShapeError)
    for wrong in (torch.ones(2, 30, dtype=torch.int64), [1.0]):
        with pytest.raises(AssertionError, match="floating-point") as error:
            layer(wrong)
        assert isinstance(error.value, gs.DTypeError)
    assert layer.to("meta")(x.to("meta")).shape == (2, 3, 7)


@RECIPE
@EMULATED
@pytest.mark.parametrize("special", [float("nan"), float("inf")])
def test_a_special_number_makes_its_tensor_or_row_nan(recipe, emulate, special):
    layer, x = made(recipe, emulate=emulate)[0], random(4, 48)
    x[1, 2] = special
    found = layer(x).isnan()
    assert found[1].all() and bool(found.all()) == (recipe == "tensorwise")
    assert not layer(torch.zeros(2, 48)).isnan().any()


@EMULATED
def test_padding_the_inner_dimension_changes_no_bits(emulate):
    x = random(5, 30)
    plain, padded = (made("tensorwise", sizes=(30, 7, 5), emulate=emulate, pad_inner_dim=p) for p in (False, True))
    assert_all_equal(run(padded, x), run(plain, x))
    whole = nn.functional.pad(x, (0, 2))
    layer = Float8Linear(32, 7, config=configured("tensorwise"))
    layer.weight, layer.bias = nn.Parameter(nn.functional.pad(plain[0].weight, (0, 2)).detach()), plain[0].bias
    if not emulate:
        assert torch.equal(layer(whole), plain[0](x))


@EMULATED
def test_autocast_and_mixed_dtypes(emulate):
    layer, x = made("tensorwise", emulate=emulate)[0], random(8, 48)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16 and torch.equal(y, layer(x.bfloat16()))
    plain = made("tensorwise", emulate=emulate)[0]
    off = {f"cast_config_{name}": CastConfig(ScalingType.DISABLED) for name in ("input", "weight", "grad_output")}
    plain.config = Float8LinearConfig(**off, emulate=emulate)
    with torch.autocast("cpu", torch.bfloat16):
        y = plain(x)
    assert torch.equal(y, plain.to(torch.bfloat16)(x.bfloat16()))
    assert layer(x.half()).dtype == torch.float16 and layer(x.double()).dtype == torch.float64
    y, gx, gw, gb = run(layer, x.bfloat16())
    assert (gx.dtype, gw.dtype, gb.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert torch.equal(gw, gw.bfloat16().float())


def test_gradients_have_no_derivative():
    layer, x = made("tensorwise")[0], random(2, 48).requires_grad_()
    (g,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        g.sum().backward()


def test_other_float8_types_are_emulated_only():
    cast = CastConfig(target_dtype=torch.float8_e4m3fnuz)
    config = Float8LinearConfig(cast_config_input=cast, cast_config_weight=cast)
    with pytest.raises(AssertionError, match="emulate=True") as error:
        Float8Linear(8, 8, config=config)
    assert isinstance(error.value, gs.FormatError)
    layer = Float8Linear(8, 8, bias=False, config=dataclasses.replace(config, emulate=True))
    assert "i:dyn_ten_torch.float8_e4m3fnuz" in repr(layer) and layer(torch.ones(2, 8)).isfinite().all()
    both = CastConfig(target_dtype=E5M2)
    config = Float8LinearConfig(cast_config_input=both, cast_config_weight=both, cast_config_grad_output=both)
    run(Float8Linear(8, 8, config=config), torch.ones(2, 8))
