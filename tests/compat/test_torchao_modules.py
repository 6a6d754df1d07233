"""What torchao's modules have beside the flat names: steps of RCEIL, kernels by name, layers of several versions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal
from support import mx as vectors
from torch import nn

import gemmsim as gs
from gemmsim.compat import torchao as ao
from gemmsim.compat.torchao.prototype.moe_training import MXFP8TrainingRecipe, mxfp8_linear
from gemmsim.compat.torchao.prototype.mx_formats import (
    MXFPInferenceConfig,
    MXGemmKernelChoice,
    MXLinearRecipeName,
    NVFP4InferenceConfig,
    NVFP4MMConfig,
    config,
    constants,
    custom_cast,
    inference_workflow,
    kernels,
    mx_linear,
    mx_tensor,
    utils,
)
from gemmsim.compat.torchao.quantization import compute_error, quantize_

E4M3 = torch.float8_e4m3fn
ELEMENTS = {
    "fp8_e4m3": E4M3, "fp8_e5m2": torch.float8_e5m2, "fp6_e2m3": "fp6_e2m3", "fp6_e3m2": "fp6_e3m2",
    "fp4_e2m1": torch.float4_e2m1fn_x2,
}  # fmt: skip
RCEIL, FLOOR = ao.ScaleCalculationMode.RCEIL, ao.ScaleCalculationMode.FLOOR


def values(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def pattern(bits):
    return torch.tensor(bits, dtype=torch.int32).view(torch.float32)


def test_scale_codes_are_rounded_up():
    near = [(e << 23) + d for e in range(255) for d in (0, 1, 0x400000, 0x400001, 0x7FFFFF)]
    x = pattern([*near, 0x3FFFFF])
    codes = mx_tensor._f32_to_e8m0_rceil(x)
    assert codes.dtype == torch.uint8
    for value, code in zip(x.tolist(), codes.tolist(), strict=True):
        want = next((c for c in range(255) if Fraction(2) ** (c - 127) >= Fraction(value)), 255)
        assert code == want, value
    special = torch.tensor([math.inf, math.nan, 0.0])
    assert mx_tensor._f32_to_e8m0_rceil(special).tolist() == [255, 255, 0]
    assert torch.equal(mx_tensor._f32_to_e8m0_rceil(x.view(2, -1).t()), codes.view(2, -1).t())
    with pytest.raises(AssertionError, match="float32"):
        mx_tensor._f32_to_e8m0_rceil(x.double())


def test_reciprocals_of_scales():
    codes = torch.arange(256, dtype=torch.uint8)
    got = mx_tensor._e8m0_scale_to_reciprocal_fp32(codes)
    assert_bitwise_equal(got[:255], torch.tensor([2.0 ** (127 - c) for c in range(255)]))
    assert got[255].isnan() and got.dtype == torch.float32
    assert_bitwise_equal(mx_tensor._e8m0_scale_to_reciprocal_fp32(codes.view(torch.float8_e8m0fnu)), got)


@pytest.mark.parametrize("tensor", ["f32", "bf16"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_steps_of_rceil_give_the_public_vectors(element, tensor):
    x = torch.from_numpy(vectors.inputs(tensor).copy())
    x = x if tensor == "f32" else x.bfloat16()
    scale, want = (torch.from_numpy(t) for t in vectors.codes(f"ao|{tensor}|{element}|rceil"))
    largest = gs.formats.parse(element.partition("_")[2]).max
    codes, data = mx_tensor._to_mx_rceil(x, x.abs().amax(-1, keepdim=True), largest)
    assert torch.equal(codes[:, 0], scale) and data.dtype == torch.float32
    if element.startswith("fp8"):
        elements = data.to(ELEMENTS[element]).view(torch.uint8)
    else:
        elements = ao._f32_to_floatx_unpacked(data, *map(int, (element[5], element[7])))
    assert ((elements == want) | (scale == 255)[:, None]).all() and data[scale == 255].isnan().all()


@pytest.mark.parametrize("mode", ["floor", "rceil"])
def test_kernels_by_name(mode):
    x, kind = values(128, 256), ao.ScaleCalculationMode(mode)
    data, scale = kernels.triton_to_mxfp8_dim0(x, 32, mode)
    want_scale, want = ao.to_mx(x, E4M3, 32, kind)
    assert torch.equal(data.view(torch.uint8), want.view(torch.uint8))
    assert torch.equal(scale.view(torch.uint8), want_scale.view(torch.uint8))
    assert_bitwise_equal(kernels.triton_mxfp8_dequant_dim0(data, scale, torch.bfloat16), ao.to_dtype(want, want_scale, E4M3, 32, torch.bfloat16))  # fmt: skip
    first, first_scale = kernels.triton_to_mxfp8_dim1(x, scaling_mode=mode)
    turned_scale, turned = ao.to_mx(x.t().contiguous(), E4M3, 32, kind)
    assert first.stride() == (1, 128) and torch.equal(first.t().view(torch.uint8), turned.view(torch.uint8))
    assert torch.equal(first_scale.view(torch.uint8), turned_scale.view(torch.uint8))
    again, _ = kernels.triton_to_mxfp8_dim1_reference(x, 32, kind)
    assert torch.equal(again.view(torch.uint8), first.view(torch.uint8))
    found = kernels.mxfp8_quantize_cuda(x, rowwise=True, scaling_mode=mode)
    for got, wanted in zip(found, (data, first, scale, first_scale), strict=True):
        assert torch.equal(got.view(torch.uint8), wanted.view(torch.uint8)) and got.stride() == wanted.stride()
    assert kernels.mxfp8_quantize_cuda(x)[0].numel() == 0 and kernels.mxfp8_quantize_cuda(x)[2].numel() == 0
    for cast in ao.MXFP8Dim1CastKernelChoice:
        t = utils._to_mxfp8_dim1_kernel_wrapper(x, 32, E4M3, x.dtype, ao.KernelPreference.AUTO, cast, kind)
        assert torch.equal(t.dequantize(), ao.to_dtype(turned, turned_scale, E4M3, 32, x.dtype))


def test_kernels_refuse_what_torchao_does():
    for call in (
        lambda: kernels.triton_to_mxfp8_dim0(values(4, 64), 64),
        lambda: kernels.triton_to_mxfp8_dim0(values(4, 64), 32, "even"),
        lambda: kernels.triton_to_mxfp8_dim0(values(64, 4).t()),
        lambda: kernels.triton_to_mxfp8_dim1(values(2, 64, 64)),
        lambda: kernels.mxfp8_quantize_cuda(values(48, 32)),
        lambda: kernels.triton_mxfp8_dequant_dim0(torch.zeros(2, 32).to(E4M3), torch.ones(2, 1).to(torch.float8_e8m0fnu), torch.float16),
        lambda: kernels.triton_mx_block_rearrange(values(128, 4)),
        lambda: kernels.down_size((3, 5)),
        lambda: utils._to_blocked_single(torch.zeros(128, 8)),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            call()


def test_scales_in_tiled_order():
    scales = torch.arange(200 * 6).view(200, 6).to(torch.uint8)
    tiled = kernels.triton_mx_block_rearrange(scales)
    assert tuple(tiled.shape) == (256, 8) and torch.equal(tiled.flatten(), ao.to_blocked(scales))
    one = torch.arange(512).view(128, 4)
    assert utils._to_blocked_single(one.to(torch.uint8))[5, 6] == one[37, 2] % 256
    x = values(2, 100, 96)
    scale, codes = kernels.triton_quantize_nvfp4(x)
    plain, want = ao.nvfp4_quantize(x.view(200, 96))
    assert tuple(scale.shape) == (2, 128, 8) and torch.equal(codes.view(200, 48), want)
    assert torch.equal(ao.from_blocked(scale, 200, 6).view(torch.uint8), plain.view(torch.uint8))


def test_bits_sizes_and_the_older_packing():
    assert kernels.get_bits(torch.tensor(5, dtype=torch.uint8)) == "00000101"
    assert kernels.get_bits(torch.tensor(-2, dtype=torch.int8)) == "11111110"
    assert mx_tensor.tensor_size_hp_to_fp4x2((4, 6), True) == [4, 3] and kernels.up_size((4, 6)) == (4, 12)
    assert mx_tensor.tensor_size_fp4x2_to_hp((4, 6), False) == [8, 6]
    assert mx_tensor.tensor_size_hp_to_fp4x2((2, 4, 6), False) == [2, 2, 6]
    codes = torch.arange(16, dtype=torch.uint8).view(2, 8)
    assert kernels.pack_uint4(codes)[0].tolist() == [0x10, 0x32, 0x54, 0x76]
    assert custom_cast.pack_uint4(codes)[0].tolist() == [0x01, 0x23, 0x45, 0x67]
    assert torch.equal(custom_cast.unpack_uint4(custom_cast.pack_uint4(codes)), codes)
    old = ao.to_mx(values(4, 32), "fp4_e2m1", 32, compat="torchao-0.6.1")[1]
    new = ao.to_mx(values(4, 32), "fp4_e2m1", 32)[1]
    assert torch.equal(custom_cast.unpack_uint4(old), kernels.unpack_uint4(new))
    with pytest.raises(AssertionError):
        custom_cast.unpack_uint4(codes.t())


def test_constants_are_those_of_the_formats():
    for name in ("F8E4M3", "F8E5M2", "F6_E2M3", "F6_E3M2", "F4_E2M1"):
        found = gs.formats.parse(name.lower()[-4:])
        assert getattr(constants, f"{name}_MAX") == float(found.max) == getattr(mx_tensor, f"{name}_MAX")
        assert getattr(constants, f"{name}_MAX_POW2") == found.emax
        if name[1] != "8":
            assert getattr(constants, f"{name}_MIN_NORMAL") == 2.0**found.emin
            assert getattr(constants, f"{name}_EXP_BIAS") == 1 - found.emin
            assert getattr(constants, f"{name}_MAX_INT") == max(found.codes()) // 2
    assert constants.SUPPORTED_ELEM_DTYPES is ao.SUPPORTED_ELEM_DTYPES
    assert torch.finfo(torch.float32).tiny == constants.F32_MIN_NORMAL


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_of_2025(dtype, bias):
    config = ao.MXLinearConfig(
        elem_dtype=E4M3, scale_calculation_mode=RCEIL, gemm_kernel_choice=MXGemmKernelChoice.CUBLAS
    )
    plain = nn.Linear(64, 32, bias=bias).to(dtype)
    model = nn.Sequential(nn.Linear(64, 32, bias=bias).to(dtype), nn.ReLU())
    model[0].load_state_dict(plain.state_dict())
    keys = list(model.state_dict())
    quantize_(model, config)
    assert isinstance(model[0], mx_linear.MXLinear) and list(model.state_dict()) == keys and "RCEIL" in repr(model)
    x = values(3, 5, 64, dtype=dtype)
    out = model[0](x)
    want = mx_linear._to_mxfp8_then_scaled_mm(x, plain.weight, ao.KernelPreference.EMULATED, RCEIL)
    want = want + plain.bias if bias else want
    assert_bitwise_equal(out, want)
    out.backward(torch.ones_like(out))
    want.backward(torch.ones_like(want))
    assert_bitwise_equal(model[0].weight.grad, plain.weight.grad)
    with torch.autocast("cpu", torch.bfloat16):
        assert model[0](x).dtype == torch.bfloat16
    layer = mx_linear.MXLinear.from_float(plain)
    assert layer is plain and layer.config == ao.MXLinearConfig()


def test_recipes():
    for recipe in MXLinearRecipeName:
        found = ao.MXLinearConfig.from_recipe_name(recipe)
        assert found == ao.MXLinearConfig.from_recipe_name(recipe.value)
        assert (found.elem_dtype == E4M3) == ("fp8" in recipe.value)
        assert found.scale_calculation_mode is (RCEIL if recipe.value.endswith("rceil") else FLOOR)
        assert (found.kernel_preference is ao.KernelPreference.EMULATED) == recipe.value.endswith("emulated")
    assert ao.MXLinearConfig.from_recipe_name("mxfp8_emulated") == ao.MXLinearConfig()
    with pytest.raises(AssertionError, match="mxfp4_cutlass"):
        ao.MXLinearConfig.from_recipe_name("mxfp6")
    high = ao.MXFP8TrainingOpConfig.from_recipe(MXFP8TrainingRecipe.MXFP8_RCEIL_WGRAD_WITH_HP)
    assert high.wgrad_with_hp and mxfp8_linear.MXFP8Linear is ao.MXFP8Linear


def test_inference_of_0_13():
    x = values(4, 64)
    old, new = (nn.Sequential(nn.Linear(64, 32)).bfloat16() for _ in range(2))
    new.load_state_dict(old.state_dict())
    weight = old[0].weight.detach().clone()
    quantize_(old, MXFPInferenceConfig(gemm_kernel_choice=MXGemmKernelChoice.EMULATED))
    quantize_(new, ao.MXDynamicActivationMXWeightConfig(scaling_mode=FLOOR))
    assert torch.equal(old[0].weight.dequantize(), ao.MXTensor.to_mx(weight, E4M3).dequantize())
    assert_bitwise_equal(old(x), new(x))
    with pytest.raises(AssertionError):
        MXFPInferenceConfig(weight_dtype=torch.float8_e5m2)
    for asked in (NVFP4InferenceConfig(), NVFP4InferenceConfig(NVFP4MMConfig.WEIGHT_ONLY)):
        model = nn.Sequential(nn.Linear(64, 32)).bfloat16()
        bias, weight = model[0].bias, ao.NVFP4Tensor.to_nvfp4(model[0].weight.detach()).dequantize()
        quantize_(model, asked)
        dynamic = asked.mm_config is NVFP4MMConfig.DYNAMIC
        left = ao.NVFP4Tensor.to_nvfp4(x).dequantize() if dynamic else x
        assert model[0].weight.per_tensor_scale is None
        assert_bitwise_equal(model(x), nn.functional.linear(left, weight, bias))


def test_what_configurations_and_filters_allow():
    config._validate_elem_dtype(E4M3)
    config._validate_kernel_preference(ao.KernelPreference.EMULATED, 16, "fp6_e2m3")
    config._validate_kernel_preference(ao.KernelPreference.AUTO, 32, E4M3)
    for call in (
        lambda: config._validate_elem_dtype(torch.float16),
        lambda: config._validate_kernel_preference(ao.KernelPreference.AUTO, 16, E4M3),
        lambda: config._validate_kernel_preference(ao.KernelPreference.TORCH, 32, E4M3),
    ):
        with pytest.raises(AssertionError):
            call()
    chosen = inference_workflow._auto_filter_for_nfp4
    large = nn.Linear(2048, 128, device="meta")
    assert chosen(large, "blocks.0.linear") and not chosen(large, "embedder.linear") and not chosen(nn.ReLU(), "x")
    for sizes in ((1024, 1024), (2048, 64), (2048, 120)):
        assert not chosen(nn.Linear(*sizes, device="meta"), "x")


def test_replacing_by_a_filter():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    mx_linear.replace_with_custom_fn_if_matches_filter(model, lambda mod: nn.Identity(), lambda mod, fqn: fqn == "1.0")
    assert isinstance(model[0], nn.Linear) and isinstance(model[1][0], nn.Identity)


def test_the_error_in_decibels():
    x = values(100, dtype=torch.float64)
    # x * 0.9 is off by u, ten of them in the difference; two norms of 100 numbers: relative, 20 / ln(10) in decibels
    bound = 20 / math.log(10) * (10 + 2 * 100 + 4) * 2.0**-53
    assert abs(compute_error(x, x * 0.9).item() - 20) <= bound and compute_error(x, x).item() == math.inf
    assert quantize_ is ao.quantize_  # the function, not the package that has its name


@pytest.mark.parametrize("shape", [(64,), (3, 64), (2, 3, 64), (2, 2, 3, 64)], ids=str)
@pytest.mark.parametrize("kind", ["mx", "nvfp4"])
def test_linear_with_a_bias_in_every_mode(kind, shape):
    make = ao.NVFP4Tensor.to_nvfp4 if kind == "nvfp4" else lambda t: ao.MXTensor.to_mx(t, E4M3)
    x, w, bias = make(values(*shape)), make(values(32, 64, seed=1)), values(32, seed=2)
    want = nn.functional.linear(x.dequantize(), w.dequantize(), bias)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            assert_bitwise_equal(nn.functional.linear(x, w, bias), want)
