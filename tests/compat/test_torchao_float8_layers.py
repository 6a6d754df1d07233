"""``gemmsim.compat.torchao.float8``: layers with Hopper's sums, in models, compilers, checkpoints, processes; its errors."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import logging
import pickle

import pytest
import torch
from support.processes import needs_processes, run_two_processes
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gemmsim as gs
from gemmsim.compat.torchao import float8
from gemmsim.compat.torchao.float8 import (
    CastConfig,
    Float8GemmConfig,
    Float8Linear,
    Float8LinearConfig,
    Float8LinearRecipeName,
    Float8TrainingTensor,
    GemmInputRole,
    ScalingGranularity,
    ScalingType,
    convert_to_float8_training,
    float8_linear_utils,
    float8_utils,
    precompute_float8_dynamic_scale_for_fsdp,
)
from gemmsim.compat.torchao.float8.float8_linear import matmul_with_hp_or_float8_args
from gemmsim.compat.torchao.float8.float8_ops import addmm_float8_unwrapped
from gemmsim.compat.torchao.float8.float8_training_tensor import choose_scaled_mm_config, hp_tensor_and_scale_to_float8

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
RECIPE = pytest.mark.parametrize("recipe", RECIPES)
EMULATED = pytest.mark.parametrize("emulate", [True, False], ids=["emulated", "hopper"])
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def configured(recipe: str, **changes) -> Float8LinearConfig:
    return dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), **changes)


def made(recipe: str, *, dtype=torch.float32, bias=True, sizes=(48, 32, 16), **changes) -> nn.Sequential:
    torch.manual_seed(0)
    one, two, three = sizes
    model = nn.Sequential(nn.Linear(one, two, bias=bias), nn.ReLU(), nn.Linear(two, three, bias=bias)).to(dtype)
    return convert_to_float8_training(model, config=configured(recipe, **changes))


def run(model: nn.Module, x: Tensor, g: Tensor | None = None) -> list[Tensor]:
    """The output, and gradients of the input and the parameters."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = model(x)
    y.backward(torch.ones_like(y) if g is None else g)
    return [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


def assert_all_equal(got: list[Tensor], want: list[Tensor]) -> None:
    assert len(got) == len(want)
    for one, two in zip(got, want, strict=True):
        assert one.dtype == two.dtype and torch.equal(one, two)


def random(*shape, seed=1, dtype=torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


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
    reasons = {"block.1": "module_filter_fn", "odd": "parametrised", "own": "forward of its own", "outer": "inside"}
    for name, words in (reasons | {"lazy": "no size", "conv": "no layer of this converter"}).items():
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
    off = {f"cast_config_{name}": CastConfig(DISABLED) for name in ("input", "weight", "grad_output")}
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


# Configurations

DYNAMIC, DISABLED = ScalingType.DYNAMIC, ScalingType.DISABLED
TENSOR, ROWS = ScalingGranularity.TENSORWISE, ScalingGranularity.AXISWISE
#: Recipe -> casts of input, weight, grad_output, and of the same in the later product; powers of two.
FIELDS = {
    "tensorwise": ([CastConfig(DYNAMIC, TENSOR, kind) for kind in (E4M3, E4M3, E5M2)] * 2, False),
    "rowwise": ([CastConfig(DYNAMIC, ROWS, E4M3)] * 6, True),
    "rowwise_with_gw_hp": (
        [CastConfig(DYNAMIC, ROWS, E4M3)] * 3
        + [CastConfig(kind, TENSOR, E4M3) for kind in (DISABLED, DYNAMIC, DISABLED)],
        True,
    ),
}


@RECIPE
def test_recipes(recipe):
    config = Float8LinearConfig.from_recipe_name(recipe)
    casts = [config.cast_config_input, config.cast_config_weight, config.cast_config_grad_output]
    casts += [config.cast_config_input_for_grad_weight, config.cast_config_weight_for_grad_input]
    casts += [config.cast_config_grad_output_for_grad_weight]
    assert (casts, config.round_scales_to_power_of_2) == FIELDS[recipe]
    gemms = (config.gemm_config_output, config.gemm_config_grad_input, config.gemm_config_grad_weight)
    assert [one.use_fast_accum for one in gemms] == [True, False, False]
    assert config == Float8LinearConfig.from_recipe_name(Float8LinearRecipeName(recipe))
    assert hash(config) == hash(pickle.loads(pickle.dumps(config))) and not config.emulate
    model = convert_to_float8_training(nn.Linear(32, 16), config=config)
    want = {"tensorwise": "i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2"}
    want["rowwise"] = "i:dyn_axs_e4m3,w:dyn_axs_e4m3,go:dyn_axs_e4m3"
    want["rowwise_with_gw_hp"] = want["rowwise"] + ",i_gw:dis_ten_e4m3,w_gi:dyn_ten_e4m3,go_gw:dis_ten_e4m3"
    assert want[recipe] in repr(model)
    assert model.linear_mm_config.output.use_fast_accum and model.scaling_type_input is DYNAMIC


def test_what_is_not_cast_is_multiplied_as_it_is():
    off = CastConfig(DISABLED)
    config = Float8LinearConfig(
        cast_config_input=off, cast_config_weight=CastConfig(DISABLED), cast_config_grad_output=CastConfig(DISABLED)
    )
    layer, x = nn.Linear(16, 8), random(4, 16)
    assert_all_equal(run(Float8Linear.from_float(layer, config), x), run(layer, x))


def test_an_object_for_several_operands_keeps_its_first_dtype():
    cast = CastConfig()
    config = Float8LinearConfig(cast_config_input=cast, cast_config_weight=cast, cast_config_grad_output=cast)
    assert cast.target_dtype == config.cast_config_grad_output.target_dtype == E4M3


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: CastConfig(DISABLED, ROWS), "AXISWISE"),
        (lambda: CastConfig(target_dtype=torch.float16), "8 bits"),
        (lambda: CastConfig(target_dtype=torch.uint8), "8 bits"),
        (lambda: CastConfig("dynamic"), "ScalingType"),
        (lambda: CastConfig(scaling_granularity="axiswise"), "ScalingGranularity"),
        (lambda: Float8LinearConfig(cast_config_input=CastConfig(DISABLED)), "or neither"),
        (lambda: Float8LinearConfig(cast_config_weight_for_grad_input=CastConfig(DISABLED)), "grad_input"),
        (lambda: Float8LinearConfig(cast_config_weight_for_grad_input=CastConfig(target_dtype=E5M2)), "one dtype"),
        (lambda: configured("rowwise", enable_fsdp_float8_all_gather=True), "TENSORWISE"),
        (lambda: Float8LinearConfig(gemm_config_output=True), "Float8GemmConfig"),
        (lambda: Float8LinearConfig(cast_config_input=None), "CastConfig"),
        (lambda: Float8LinearConfig.from_recipe_name("rowise"), "rowwise"),
        (lambda: Float8LinearConfig.from_recipe_name(3), "tensorwise, rowwise"),
        (lambda: float8_utils.amax_to_scale(torch.ones(()), torch.float16), "float8_e4m3fn"),
        (lambda: float8_utils.to_fp8_saturated(torch.ones(()), torch.float8_e8m0fnu), "float8_e4m3fn"),
        (lambda: float8_utils.tensor_to_amax(torch.ones(2), scaling_granularity=ROWS), "a dimension"),
    ],
)
def test_what_torchao_asserts_is_an_error_of_both_kinds(make, words):
    with pytest.raises(AssertionError, match=words) as error:
        make()
    assert isinstance(error.value, gs.FormatError) and isinstance(error.value, ValueError)
    assert "allowed: " in str(error.value)


def test_other_configs_and_modules_are_refused():
    for bad in ("rowwise", 3):
        with pytest.raises(TypeError, match="Float8LinearConfig"):
            convert_to_float8_training(nn.Sequential(nn.Linear(2, 2)), config=bad)
    for bad in (nn.Conv1d(1, 1, 1), nn.LazyLinear(2), None):
        with pytest.raises(TypeError, match="allowed: "):
            Float8Linear.from_float(bad)
    with pytest.raises(TypeError, match="parametrised"):
        Float8Linear.from_float(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))


def test_a_deprecated_option_is_logged(caplog):
    Float8LinearConfig(force_recompute_fp8_weight_in_bwd=True)
    assert "deprecated" in caplog.text


# Tensors and helpers


def test_cast_tensors():
    x = random(4, 6, dtype=torch.bfloat16)
    scale = float8_utils.tensor_to_scale(x, E4M3, scaling_granularity=ROWS, axiswise_dim=-1)
    cast = hp_tensor_and_scale_to_float8(x, scale, E4M3, axiswise_dim=-1)
    assert cast.shape == (4, 6) and cast.dtype == torch.bfloat16 and cast.device == x.device
    assert torch.equal(cast.to_original_precision(), cast._data.bfloat16() / scale)
    assert float8_utils.fp8_tensor_statistics(cast, E4M3) == (0, 4)
    turned = cast.t()
    assert turned._axiswise_dim == 0 and turned._scale.shape == (1, 4) and turned.t()._axiswise_dim == -1
    assert "axiswise_dim=-1" in repr(cast) and float8.distributed_utils.tensor_already_casted_to_fp8(cast)
    for call in (lambda: torch.mm(cast, x), lambda: torch.add(cast, 1), lambda: torch.mm(cast, turned)):
        with pytest.raises(AssertionError) as error:
            call()
        assert isinstance(error.value, gs.DTypeError)
    with pytest.raises(AssertionError, match="None, 0, -1"):
        Float8TrainingTensor(x, scale, x.dtype, None, axiswise_dim=1)
    layer = made("tensorwise")[0]
    with pytest.raises(AssertionError, match="to_original_precision"):
        layer(cast)


def test_options_are_chosen_by_roles():
    options = made("tensorwise")[0].linear_mm_config
    names = {
        "output": ("INPUT", "WEIGHT"),
        "grad_input": ("GRAD_OUTPUT", "WEIGHT"),
        "grad_weight": ("GRAD_OUTPUT", "INPUT"),
    }
    for name, (a, b) in names.items():
        found = choose_scaled_mm_config(GemmInputRole[a], options, GemmInputRole[b], options)
        assert found is getattr(options, name)
    other = options._replace(output=options.grad_input)
    for roles in ((GemmInputRole.WEIGHT, options, GemmInputRole.INPUT, options),
                  (GemmInputRole.INPUT, options, GemmInputRole.WEIGHT, other)):  # fmt: skip
        with pytest.raises(AssertionError):
            choose_scaled_mm_config(*roles)


def test_the_products_of_the_layer_without_it():
    layer, x = made("rowwise")[0], random(3, 48)
    found = matmul_with_hp_or_float8_args.apply(x, layer.weight.t(), layer.linear_mm_config, layer.config)
    assert torch.equal(found + layer.bias, layer(x))


def test_padding_and_strides():
    x = torch.ones(3, 17)
    shapes = {0: (16, 17), 1: (3, 32), (0, 1): (16, 32)}
    for dims, shape in shapes.items():
        padded = float8_utils.pad_tensor_for_matmul(x, dims)
        assert padded.shape == shape and padded.sum() == x.sum()
    for bad in (x[0], None):
        with pytest.raises(AssertionError):
            float8_utils.pad_tensor_for_matmul(bad, 0)
    assert float8_utils.is_row_major(x.stride()) and not float8_utils.is_row_major(x.t().stride())
    with pytest.raises(AssertionError):
        float8_utils.is_row_major((1,))


def test_filters_by_recipe():
    """Sizes (output, input) on both sides of the thresholds that torchao documents for an H100."""
    meta = {"device": "meta", "bias": False}
    rows = float8._auto_filter_for_recipe("rowwise", ["skip"])
    for n, k, want in ((2048, 8192, False), (2064, 1024, False), (4096, 2048, False), (4112, 2048, True),
                       (2064, 2064, True), (4120, 2048, False)):  # fmt: skip
        assert rows(nn.Linear(k, n, **meta), "layer") is want
    whole = float8._auto_filter_for_recipe(Float8LinearRecipeName.TENSORWISE, [])
    for n, k, want in ((1024, 4096, False), (1040, 4096, True), (1024, 4112, True), (1040, 4100, False)):
        assert whole(nn.Linear(k, n, **meta), "layer") is want
    assert not rows(nn.Linear(8192, 8192, **meta), "block.skipped") and not rows(nn.ReLU(), "layer")
    with pytest.raises(NotImplementedError):
        float8._auto_filter_for_recipe("rowwise_with_gw_hp", [])
    with pytest.raises(ValueError, match="tensorwise"):
        float8._auto_filter_for_recipe("mxfp8", [])


def test_products_of_unwrapped_tensors():
    """Without scales of rows, those of ``gs.scaled_mm``; a bias is added last."""
    x, w = random(16, 256).to(E4M3), random(16, 256, seed=2).to(E4M3)
    two, bias = torch.tensor(2.0), random(16)
    half = torch.tensor(0.5)
    for fast in (True, False):
        want = gs.scaled_mm(x, w.t(), half, half, out_dtype=torch.bfloat16, use_fast_accum=fast, split=1)
        got = addmm_float8_unwrapped(x, two, w.t(), two, torch.bfloat16, use_fast_accum=fast)
        assert torch.equal(got, want)
        got = addmm_float8_unwrapped(x, two, w.t(), two, torch.bfloat16, None, bias.bfloat16(), fast)
        assert torch.equal(got, want + bias.bfloat16())
    with pytest.raises(AssertionError, match="output_scale"):
        addmm_float8_unwrapped(x, two, w.t(), two, E4M3, output_scale=two)


def test_older_names():
    from gemmsim.compat.torchao.float8.float8_tensor import Float8Tensor

    assert Float8Tensor is Float8TrainingTensor


def test_names_and_modules():
    import gemmsim.compat.torchao as torchao

    assert torchao.float8.config.CastConfig is CastConfig and "float8" in dir(torchao)
    offered = set(float8.__all__)
    assert offered >= {"convert_to_float8_training", "Float8LinearConfig", "_auto_filter_for_recipe"}
    assert list(itertools.filterfalse(lambda name: hasattr(float8, name), offered)) == []
