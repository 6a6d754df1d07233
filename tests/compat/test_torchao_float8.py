"""``gemmsim.compat.torchao.float8``: bits of torchao's scales and emulated layer (tests/golden/torchao_float8.npz).

Operands are compared with what torchao put into its products. Products are PyTorch's own float32 ones, whose order of
additions is that of the machine, so they are made again here from torchao's operands; where every order gives the same
sums (the cases "exact"), torchao's outputs are compared themselves.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from support import torchao_float8 as vectors
from torch import Tensor

from gemmsim.compat.torchao.float8 import Float8LinearConfig, GemmInputRole
from gemmsim.compat.torchao.float8.float8_linear import Float8Linear
from gemmsim.compat.torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
from gemmsim.compat.torchao.float8.float8_utils import amax_to_scale

#: Product and side -> the tensor that is cast, its dimension along the sum, whether the product takes it transposed.
OPERANDS = {
    ("output", "a"): ("x", -1, False),
    ("output", "b"): ("w", -1, True),
    ("grad_input", "a"): ("g", -1, False),
    ("grad_input", "b"): ("w", 0, False),
    ("grad_weight", "a"): ("g", 0, True),
    ("grad_weight", "b"): ("x", 0, False),
}
RESULTS = {"output": "y", "grad_input": "gx", "grad_weight": "gw"}
CASES = vectors.cases()
EACH = pytest.mark.parametrize(
    "case", CASES, ids=[f"{i}-{one.recipe}-{str(one.dtype)[6:]}-{one.kind}" for i, one in enumerate(CASES)]
)


def assert_same(got: Tensor, want: Tensor) -> None:
    """Equal numbers with equal signs, zeros too, or both NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape
    got, want = got.float(), want.float()
    same = (got == want) & (got.signbit() == want.signbit()) | (got.isnan() & want.isnan())
    assert same.all(), f"{int((~same).sum())} of {same.numel()} differ"


def config_of(recipe: str) -> Float8LinearConfig:
    return dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)


def run(case: vectors.Case) -> dict[str, Tensor]:
    layer = torch.nn.Linear(*reversed(case.parts["w"].shape))
    layer.weight, layer.bias = (torch.nn.Parameter(case.parts[name].clone()) for name in ("w", "b"))
    layer = Float8Linear.from_float(layer, config_of(case.recipe))
    x = case.parts["x"].clone().requires_grad_()
    y = layer(x)
    y.backward(case.parts["g"])
    return {"y": y.detach(), "gx": x.grad, "gw": layer.weight.grad, "gb": layer.bias.grad}


def test_every_recipe_dtype_and_kind_is_stored():
    stored = {(case.recipe, case.dtype, case.kind) for case in CASES}
    assert len(CASES) == 96 and len(stored) == 3 * 2 * len(vectors.KINDS)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_scales_of_largest_magnitudes(dtype, power):
    stored = vectors.scales()
    want = stored[f"{str(dtype)[6:]}/{power}"]
    assert want.numel() > 5000
    assert_same(amax_to_scale(stored["amax"], dtype, power), want)


def test_some_scales_rounded_down_to_a_power_of_two_are_above_the_quotient():
    """log2 is rounded to float32 before its integer part is taken: the powers are torchao's, and not the floor."""
    stored = vectors.scales()
    exact, power = stored["float8_e4m3fn/False"], stored["float8_e4m3fn/True"]
    above = power > exact
    assert above.any() and (power[above] / exact[above] < 1 + 22 * 2.0**-23).all()


@EACH
def test_operands_are_cast_as_there(case):
    config = config_of(case.recipe)
    for (product, side), (name, dim, transposed) in OPERANDS.items():
        key = f"{product}/{side}"
        if f"{key}/elements" not in case.parts:
            assert (product, case.recipe) == ("grad_weight", "rowwise_with_gw_hp")
            continue
        elements, scale = case.parts[f"{key}/elements"], case.parts[f"{key}/scale"]
        how = {
            "scaling_granularity": config.cast_config_input.scaling_granularity,
            "axiswise_dim": dim,
            "round_scales_to_power_of_2": config.round_scales_to_power_of_2,
        }
        if scale.dim() == 0:
            how |= {"scaling_granularity": config.cast_config_weight_for_grad_input.scaling_granularity}
            how |= {"axiswise_dim": None}
        got = hp_tensor_to_float8_dynamic(case.parts[name], elements.dtype, None, **how)
        got = got.t() if transposed else got
        assert_same(got._scale, scale)
        assert_same(got._data, elements)


@EACH
def test_products_are_those_of_its_operands(case):
    got = run(case)
    for product, name in RESULTS.items():
        if product == "grad_weight" and case.recipe == "rowwise_with_gw_hp":
            want = torch.mm(case.parts["g"].t(), case.parts["x"])
        else:
            # transposed operands lie in memory as the layer has them: the order of additions may depend on that
            (_, _, a), (_, _, b) = OPERANDS[product, "a"], OPERANDS[product, "b"]
            left, right = case.decoded(product, "a"), case.decoded(product, "b")
            left = left.t().contiguous().t() if a else left
            right = right.t().contiguous().t() if b else right
            want = torch.mm(left, right).to(case.dtype)
        want = want + case.parts["b"] if product == "output" else want
        assert_same(got[name], want)
    assert_same(got["gb"], case.parts["g"].sum(0))


@pytest.mark.parametrize("case", [one for one in CASES if one.kind == "exact"], ids=lambda one: f"{one.recipe}")
def test_exact_sums_are_its_outputs(case):
    got = run(case)
    native = case.dtype == torch.bfloat16 and case.recipe == "rowwise_with_gw_hp"
    for name in RESULTS.values():
        if not (native and name == "gw"):  # PyTorch's own product in bfloat16, which may round sums on the way
            assert_same(got[name], case.parts[name])


@pytest.mark.parametrize("recipe", vectors.RECIPES)
def test_products_of_cast_tensors(recipe):
    """``torch.mm`` of two cast tensors is the layer's product."""
    case = next(one for one in CASES if (one.recipe, one.kind, one.dtype) == (recipe, "normal", torch.bfloat16))
    layer = Float8Linear(32, 16, bias=False, config=config_of(recipe))
    layer.weight = torch.nn.Parameter(case.parts["w"])
    config, options = layer.config, layer.linear_mm_config
    how = {
        "scaling_granularity": config.cast_config_input.scaling_granularity,
        "axiswise_dim": -1 if recipe != "tensorwise" else None,
        "round_scales_to_power_of_2": config.round_scales_to_power_of_2,
    }
    x = hp_tensor_to_float8_dynamic(case.parts["x"], torch.float8_e4m3fn, options, **how)
    w = hp_tensor_to_float8_dynamic(
        case.parts["w"], torch.float8_e4m3fn, options, gemm_input_role=GemmInputRole.WEIGHT, **how
    )
    assert_same(torch.mm(x, w.t()), layer(case.parts["x"]).detach())
