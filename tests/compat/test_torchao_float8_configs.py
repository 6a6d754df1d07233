"""``gemmsim.compat.torchao.float8``: configurations, recipes, cast tensors, helpers, and their errors."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch
from support.float8_layers import E4M3, E5M2, RECIPES, assert_all_equal, configured, made, random, run
from torch import nn

import gemmsim as gs
from gemmsim.compat.torchao import float8
from gemmsim.compat.torchao.float8 import (
    CastConfig,
    Float8Linear,
    Float8LinearConfig,
    Float8LinearRecipeName,
    Float8TrainingTensor,
    GemmInputRole,
    ScalingGranularity,
    ScalingType,
    convert_to_float8_training,
    float8_utils,
)
from gemmsim.compat.torchao.float8.float8_linear import matmul_with_hp_or_float8_args
from gemmsim.compat.torchao.float8.float8_ops import addmm_float8_unwrapped
from gemmsim.compat.torchao.float8.float8_training_tensor import choose_scaled_mm_config, hp_tensor_and_scale_to_float8

RECIPE = pytest.mark.parametrize("recipe", RECIPES)


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
