"""``gemmsim.compat.torchao``: torchao's public vectors through its own names, and its defaults, layouts and errors."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from support import mx as vectors
from support.rounding import assert_product
from torch import nn

import gemmsim as gs
from gemmsim.compat import torchao as ao

DTYPES = {
    "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "fp6_e2m3": ao.DTYPE_FP6_E2M3,
    "fp6_e3m2": ao.DTYPE_FP6_E3M2, "fp4_e2m1": torch.float4_e2m1fn_x2,
}  # fmt: skip
COMPAT = {"ao": "torchao", "ao018": "torchao-0.18", "ao061": "torchao-0.6.1"}


def values(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def vector_sets():
    for name in COMPAT:
        for key in vectors.archive(name):
            peer, *rest = key.split("|")
            if peer == name and rest[-1] == "scale" and rest[0] in ("f32", "bf16", "bf16all"):
                yield name, *rest[:3]


@pytest.mark.parametrize("name, tensor, element, rule", list(vector_sets()), ids="-".join)
def test_public_vectors(name, tensor, element, rule):
    x = torch.from_numpy(vectors.inputs(tensor).copy())
    x = x if tensor == "f32" else x.bfloat16()
    scale, codes = (torch.from_numpy(t) for t in vectors.codes(f"{name}|{tensor}|{element}|{rule}"))
    kind = "fp4_e2m1" if name == "ao061" and element == "fp4_e2m1" else DTYPES[element]
    got_scale, data = ao.to_mx(x, kind, 32, ao.ScaleCalculationMode(rule), compat=COMPAT[name])
    data = data.view(torch.uint8)
    if element == "fp4_e2m1":
        data = ao.unpack_uint4(data)
        data = data.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) if name == "ao061" else data
    want_dtype, want_shape = (torch.uint8, (len(x),)) if name == "ao061" else (torch.float8_e8m0fnu, (len(x), 1))
    assert got_scale.dtype == want_dtype and tuple(got_scale.shape) == want_shape
    assert torch.equal(got_scale.view(torch.uint8).flatten(), scale)
    assert ((data == codes) | (scale == 255)[:, None]).all()


@pytest.mark.parametrize("kind", ["block", "tensor"])
def test_nvfp4_vectors(kind):
    data = vectors.archive("ao")
    x = torch.from_numpy(data["nvfp4|x2" if kind == "tensor" else "nvfp4|x"])
    second = torch.from_numpy(data["nvfp4|pts"]).reshape(()) if kind == "tensor" else None
    scale, codes = ao.nvfp4_quantize(x, per_tensor_scale=second)
    assert torch.equal(scale.view(torch.uint8), torch.from_numpy(data[f"nvfp4|{kind}|scale"]))
    assert torch.equal(codes, torch.from_numpy(data[f"nvfp4|{kind}|elem"]))
    if second is not None:
        assert ao.per_tensor_amax_to_scale(x.abs().amax()).item() == second.item()
    t = ao.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=second, is_swizzled_scales=True)
    rows = 32 * ao.ceil_div(x.shape[0], 128), 16 * ao.ceil_div(x.shape[1], 64)
    assert tuple(t.scale.shape) == rows == ao.hp_data_dims_to_swizzled_scale_dims_nvfp4(*x.shape)
    again = ao.NVFP4Tensor(t.qdata, t.scale, 16, torch.float32, second, is_swizzled_scales=True)
    assert torch.equal(again.dequantize(), t.dequantize())
    elements = ao.f4_unpacked_to_f32(ao.unpack_uint4(codes)).view(*x.shape[:-1], -1, 16)
    assert torch.equal(t.dequantize(), (elements * t.get_hp_scales()[..., None]).view(x.shape))


@pytest.mark.parametrize("kind", DTYPES.values(), ids=str)
@pytest.mark.parametrize("swizzled", [False, True])
def test_tensors_have_torchaos_fields(kind, swizzled):
    x = values(200, 160, dtype=torch.bfloat16)
    t = ao.MXTensor.to_mx(x, kind, 32, is_swizzled_scales=swizzled)
    scale, data = ao.to_mx(x, kind, 32, is_swizzled_scales=swizzled)
    assert torch.equal(t.scale.view(torch.uint8), scale.view(torch.uint8)) and t.scale.dtype == scale.dtype
    if swizzled:
        assert tuple(t.scale.shape) == ao.hp_data_dims_to_swizzled_scale_dims_mx(200, 160)
    assert torch.equal(t.qdata.view(torch.uint8), data.view(torch.uint8)) and t.qdata.dtype == data.dtype
    assert (t.elem_dtype, t.block_size, t.orig_dtype) == (kind, 32, torch.bfloat16)
    assert (t._elem_dtype, t._block_size, t._orig_dtype) == (kind, 32, torch.bfloat16)
    assert t._data.dtype == data.dtype and t._scale_e8m0.dtype == scale.dtype
    made = ao.MXTensor(t.qdata, t.scale, kind, 32, torch.bfloat16, None, None, swizzled)
    assert torch.equal(made.dequantize(), t.dequantize()) and made.dequantize().dtype == torch.bfloat16
    if not swizzled:
        assert torch.equal(t.to_dtype(torch.float32), ao.to_dtype(data, scale, kind, 32, torch.float32))


def test_tensors_keep_their_fields():
    kwargs = ao.QuantizeTensorToMXKwargs(scaling_mode=ao.ScaleCalculationMode.RCEIL)
    t = ao.MXTensor.to_mx(values(64, 64), torch.float8_e4m3fn, act_quant_kwargs=kwargs)
    file = io.BytesIO()
    torch.save(nn.Parameter(t, requires_grad=False), file)
    file.seek(0)
    for twin in (copy.deepcopy(t), t.clone(), t.t().t(), t[:32], torch.load(file, weights_only=True)):
        assert type(twin) is ao.MXTensor and twin.act_quant_kwargs == kwargs and twin.elem_dtype == t.elem_dtype
    compiled = torch.compile(lambda t: t.t(), backend="aot_eager", fullgraph=True)(t)
    assert type(compiled) is ao.MXTensor and compiled.act_quant_kwargs == kwargs
    compiled = torch.compile(lambda x: ao.MXTensor.to_mx(x, torch.float8_e4m3fn).dequantize(), backend="aot_eager", fullgraph=True)  # fmt: skip
    assert torch.equal(compiled(values(4, 64)), ao.MXTensor.to_mx(values(4, 64), torch.float8_e4m3fn).dequantize())


def test_products_are_pytorchs_of_the_decoded_operands():
    x, w = values(5, 64, dtype=torch.bfloat16), values(32, 64, seed=1, dtype=torch.bfloat16)
    bias = values(32, seed=2, dtype=torch.bfloat16)
    kwargs = ao.QuantizeTensorToMXKwargs()
    a = ao.MXTensor.to_mx(x, torch.float8_e4m3fn)
    b = ao.MXTensor.to_mx(w, torch.float8_e4m3fn, act_quant_kwargs=kwargs)
    plain = a.dequantize(), b.dequantize()
    assert torch.equal(torch.mm(a, b.t()), plain[0] @ plain[1].t())
    assert torch.equal(nn.functional.linear(x, b, bias), torch.addmm(bias, plain[0], plain[1].t()))
    assert torch.equal(gs.mx.matmul(a, b.t(), "fp32"), gs.qmatmul(*(t.float() for t in (plain[0], plain[1].t())), ": fp32", out_dtype=torch.bfloat16))  # fmt: skip


E4M3 = torch.float8_e4m3fn
ERRORS = {
    "dtype": (lambda: ao.to_mx(torch.ones(32, dtype=torch.int32), E4M3, 32), AssertionError, "not supported"),
    "size": (lambda: ao.to_mx(torch.ones(3, 33), E4M3, 32), AssertionError, r"\(3, 33\)"),
    "strides": (lambda: ao.to_mx(torch.ones(32, 32).t(), E4M3, 32), AssertionError, "contiguous"),
    "element": (lambda: ao.to_mx(torch.ones(32), torch.int8, 32), AssertionError, "unsupported"),
    "mode": (lambda: ao.to_mx(torch.ones(32), E4M3, 32, ao.ScaleCalculationMode.RCEIL, compat="torchao-0.6.1"), AssertionError, "FLOOR"),
    "bytes": (lambda: ao.MXTensor.from_qdata_and_scales(torch.ones(32, dtype=torch.uint8), torch.ones(1), torch.float32), AssertionError, "typed MX qdata"),
    "scale": (lambda: ao.MXTensor.from_qdata_and_scales(torch.ones(32).to(E4M3), torch.ones(1), torch.float32), AssertionError, "scale.dtype"),
    "step": (lambda: ao.MXTensor.to_mx(torch.ones(64, 32), E4M3)[::2], ValueError, "step"),
    "rows": (lambda: ao.MXTensor.to_mx(torch.ones(256, 64), E4M3, is_swizzled_scales=True)[64:], RuntimeError, "128"),
    "columns": (lambda: ao.MXTensor.to_mx(torch.ones(4, 64), E4M3)[:, 16:], AssertionError, "block_size"),
    "weight only": (lambda: torch.ones(4, 64) @ ao.MXTensor.to_mx(torch.ones(4, 64), E4M3).t(), AssertionError, "weight-only"),
    "preference": (lambda: ao.MXTensor.to_mx(torch.ones(4, 64), E4M3) @ ao.MXTensor.to_mx(torch.ones(4, 64), E4M3, kernel_preference=ao.KernelPreference.AUTO).t(), AssertionError, "kernel_preference"),
    "config": (lambda: ao.MXDynamicActivationMXWeightConfig(weight_dtype=torch.float8_e5m2), AssertionError, "equal"),
    "float32 weight": (lambda: ao.quantize_(nn.Linear(32, 32), ao.MXDynamicActivationMXWeightConfig()), AssertionError, "bfloat16"),
    "nvfp4 size": (lambda: ao.nvfp4_quantize(torch.ones(2, 24)), AssertionError, "16"),
    "nvfp4 block": (lambda: ao.nvfp4_quantize(torch.ones(2, 32), 32), AssertionError, "block_size=16"),
    "nvfp4 weight": (lambda: ao.quantize_(nn.Linear(32, 8), ao.NVFP4WeightOnlyConfig()), RuntimeError, "16"),
    "recipe": (lambda: ao.MXFP8TrainingOpConfig.from_recipe("mxfp8"), ValueError, "mxfp8_rceil"),
    "other config": (lambda: ao.quantize_(nn.Linear(32, 32), 3), TypeError, "config"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, error, words = ERRORS[case]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name, bits", [("f4", 4), ("f6_e2m3", 6), ("f6_e3m2", 6)])
def test_single_elements(name, bits):
    encode, decode = getattr(ao, f"f32_to_{name}_unpacked"), getattr(ao, f"{name}_unpacked_to_f32")
    codes = torch.arange(2**bits, dtype=torch.uint8)
    values_ = decode(codes)
    assert torch.equal(encode(values_), codes)
    positive = values_[: 2 ** (bits - 1)]
    middle = (positive[1:] + positive[:-1]) / 2
    below, above = (torch.nextafter(middle, torch.tensor(to)) for to in (-math.inf, math.inf))
    assert torch.equal(encode(below), codes[: len(middle)]) and torch.equal(encode(above), codes[1 : len(middle) + 1])
    assert (encode(middle) % 2 == 0).all() and encode(torch.tensor([1e30, -math.inf])).tolist() == [
        len(middle),
        2**bits - 1,
    ]


def test_scales_and_packing():
    codes = torch.arange(256, dtype=torch.uint8)
    found = ao.get_fp_scale(codes.view(torch.float8_e8m0fnu))
    assert found[0] == 2.0**-127 and found[254] == 2.0**127 and found[255].isnan()
    four = codes % 16
    assert torch.equal(ao.unpack_uint4(ao.pack_uint4(four)), four)
    assert torch.equal(
        ao.from_blocked(ao.to_blocked(codes.view(64, 4), use_triton_kernel=False), 64, 4), codes.view(64, 4)
    )
    assert ao.ScaleCalculationMode("rceil") == ao.ScaleCalculationMode.RCEIL


# Layers


def test_layers_of_061():
    x = values(4, 64).requires_grad_()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32))
    weight = model[0].weight
    ao.swap_linear_with_mx_linear(model, torch.float8_e4m3fn, 32, lambda mod, fqn: fqn == "0")
    assert type(model[0]) is ao.MXLinear and type(model[2]) is nn.Linear and model[0].weight is weight
    a, b = (ao.MXTensor.to_mx(t.detach(), torch.float8_e4m3fn).dequantize() for t in (x, weight))
    out = model[0](x)
    assert torch.equal(out, torch.addmm(model[0].bias, a, b.t()))
    grad = values(4, 32, seed=3)
    with pytest.warns(gs.mx.BlockDimWarning):
        out.backward(grad)
    g = ao.MXTensor.to_mx(grad, torch.float8_e4m3fn).dequantize()
    assert_product(x.grad, g, b)
    assert_product(weight.grad, g.t(), a)
    bare = nn.Linear(32, 32)
    ao.swap_linear_with_mx_inference_linear(bare, "fp6_e2m3", 32)
    assert type(bare) is nn.Linear
    ao.swap_linear_with_mx_inference_linear(model, "fp6_e2m3", 32)
    assert type(model[2]) is ao.MXInferenceLinear and type(model[0]) is ao.MXInferenceLinear
    y = values(4, 32)
    assert torch.equal(model[2](y), nn.functional.linear(y, model[2].weight_mx.dequantize(), model[2].bias))
    assert "fp6_e2m3" in repr(model)


def test_inference_layers_of_061_are_stored():
    x, models = values(3, 64), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(nn.Sequential(nn.Linear(64, 32)))
        ao.swap_linear_with_mx_inference_linear(models[-1], torch.float8_e4m3fn, 32)
    file = io.BytesIO()
    torch.save(models[0].state_dict(), file)
    file.seek(0)
    models[1].load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(models[0](x), models[1](x))
    assert copy.deepcopy(models[0]).to("meta")[0].weight_mx.device.type == "meta"
    assert (
        isinstance(models[0].bfloat16()[0].weight_mx, ao.MXTensor) and models[0](x.bfloat16()).dtype is torch.bfloat16
    )


def test_mxfp8_linear():
    model = nn.Sequential(nn.Linear(64, 32))
    ao.quantize_(model, ao.MXFP8TrainingOpConfig.from_recipe("mxfp8_rceil_wgrad_with_hp"))
    layer = model[0]
    assert type(layer) is ao.MXFP8Linear and layer.wgrad_with_hp
    x = values(32, 64).requires_grad_()
    out = layer(x)
    out.sum().backward()
    q = gs.mx.quantize
    with torch.no_grad():
        want = q(x, "mxfp8_e4m3/rceil") @ q(layer.weight, "mxfp8_e4m3/rceil").t() + layer.bias
        assert torch.equal(out, want)
        assert_product(layer.weight.grad, torch.ones(32, 32).t(), x)


def test_weights_for_inference():
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 16)).bfloat16()
    twin = copy.deepcopy(model)
    ao.quantize_(model, ao.MXDynamicActivationMXWeightConfig())
    x = values(4, 64, dtype=torch.bfloat16)
    q = [gs.mx.quantize(t.detach(), "mxfp8_e4m3/rceil") for t in (twin[0].weight, x)]
    assert isinstance(model[0].weight, ao.MXTensor)
    assert torch.equal(model[0](x), torch.addmm(twin[0].bias, gs.mx.quantize(x, "mxfp8_e4m3/rceil"), q[0].t()))
    assert torch.equal(
        torch.load(saved(model.state_dict()), weights_only=True)["0.weight"].codes, model[0].weight.codes
    )


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_nvfp4_layers():
    x = values(4, 64)
    for config in (ao.NVFP4WeightOnlyConfig(), ao.NVFP4DynamicActivationNVFP4WeightConfig()):
        layer = nn.Linear(64, 32)
        weight = layer.weight.detach()
        ao.quantize_(layer, config)
        left = x if isinstance(config, ao.NVFP4WeightOnlyConfig) else gs.mx.quantize(x, "nvfp4/tensor")
        want = torch.addmm(layer.bias, left, gs.mx.quantize(weight, "nvfp4/tensor").t())
        assert torch.equal(layer(x), want)
    model = nn.Sequential(nn.Linear(64, 32))
    ao.quantize_(model, ao.NVFP4DynamicActivationNVFP4WeightConfig(step="prepare"))
    assert type(model[0]) is ao.NVFP4ObservedLinear
    model(x), model(2 * x)
    weight = model[0].weight.detach()
    ao.quantize_(model, ao.NVFP4DynamicActivationNVFP4WeightConfig(step="convert"))
    second = ao.per_tensor_amax_to_scale((2 * x).abs().amax())
    left = gs.mx.quantize(x, "nvfp4/tensor", tensor_scale=second)
    assert torch.equal(model(x), torch.addmm(model[0].bias, left, gs.mx.quantize(weight, "nvfp4/tensor").t()))


def test_every_name_is_there():
    for name in ao.__all__:
        assert getattr(ao, name) is not None
    with pytest.raises(AttributeError):
        ao.to_mxx  # noqa: B018


def test_compiled_mx_mm():
    x, weight = values(5, 64), values(32, 64, seed=1)
    kinds = torch.float8_e4m3fn, ao.DTYPE_FP6_E2M3, torch.float8_e5m2

    def run(w):
        return ao.mx_mm.apply(x, w, *kinds, 32, scale_calculation_mode=ao.ScaleCalculationMode.RCEIL)

    results = []
    for call in (torch.compile(run, backend="aot_eager", fullgraph=True), run):
        w = weight.clone().requires_grad_()
        out = call(w)
        out.sum().backward()
        results.append((out.detach(), w.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_mx_mm_has_an_element_type_for_each_operand():
    """dx = Q(g; N) Q(W.T; N).T and dW = Q(g.T; M) Q(x.T; M).T, decoded to the operands' dtype."""
    generator = torch.Generator().manual_seed(8)
    x, w = (torch.randn(*shape, generator=generator).requires_grad_() for shape in ((2, 16, 64), (32, 64)))
    kinds = torch.float8_e4m3fn, "fp6_e2m3", torch.float8_e5m2
    a, b, g = "mxfp8_e4m3/rceil", "mxfp6_e2m3/rceil", "mxfp8_e5m2/rceil"
    more = ao.KernelPreference.EMULATED, ao.MXFP8Dim0CastKernelChoice.TORCH, ao.MXFP8Dim1CastKernelChoice.TORCH
    rows = x.detach().reshape(32, 64)
    for hp in (False, True):
        x.grad = w.grad = None
        out = ao.mx_mm.apply(x, w, *kinds, 32, *more, ao.ScaleCalculationMode.RCEIL, hp)
        assert torch.equal(out.reshape(32, 32), gs.mx.quantize(rows, a) @ gs.mx.quantize(w.detach(), b).T)
        grad = torch.randn(out.shape, generator=generator)
        out.backward(grad)
        grad = grad.reshape(32, 32)
        left, right = (rows, grad) if hp else (gs.mx.quantize(rows, a, dim=0), gs.mx.quantize(grad, g, dim=0))
        assert_product(x.grad.reshape(32, 64), gs.mx.quantize(grad, g), gs.mx.quantize(w.detach(), b, dim=0))
        assert_product(w.grad, right.T, left)
    with pytest.raises(AssertionError, match="elem_dtype"):
        ao.mx_mm.apply(x, w, torch.int8, torch.int8, torch.int8, 32)


@pytest.mark.parametrize("ebits, mbits", [(2, 1), (2, 3), (3, 2), (5, 2), (4, 3), (1, 6), (6, 1)])
def test_any_small_format_has_codes(ebits, mbits):
    codes = torch.arange(1 << 1 + ebits + mbits, dtype=torch.int32).to(torch.uint8)
    values = ao._floatx_unpacked_to_f32(codes, ebits, mbits)
    bias = 2 ** (ebits - 1) - 1
    field, trailing = codes.int() >> mbits & (1 << ebits) - 1, codes.int() & (1 << mbits) - 1
    exact = torch.where(field > 0, 1 + trailing / 2**mbits, trailing / 2**mbits) * 2.0 ** (field.clamp(min=1) - bias)
    assert torch.equal(values, torch.where(codes.int() >> ebits + mbits == 1, -exact, exact))
    assert torch.equal(ao._f32_to_floatx_unpacked(values, ebits, mbits), codes)
    most = (1 << ebits + mbits) - 1
    assert ao._f32_to_floatx_unpacked(torch.tensor([1e30, float("-inf")]), ebits, mbits).tolist() == [
        most,
        2 * most + 1,
    ]
    with pytest.raises(AssertionError, match="allowed"):
        ao._f32_to_floatx_unpacked(values, 7, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nvfp4_of_tiny_tensors(dtype):
    x = values(4, 64, dtype=dtype)
    want = ao.nvfp4_quantize(x, 16, ao.per_tensor_amax_to_scale(x.abs().max()))
    tiny = x * 2.0**-104
    second = ao.per_tensor_amax_to_scale(tiny.abs().max())
    assert second < 2.0**-96
    for quantize in (ao.nvfp4_quantize, torch.compile(ao.nvfp4_quantize, backend="aot_eager", fullgraph=True)):
        got = quantize(tiny, 16, second)
        assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(got, want, strict=True))
    t, plain = ao.NVFP4Tensor.to_nvfp4(tiny, 16, second), ao.NVFP4Tensor.to_nvfp4(x, 16, second * 2.0**104)
    assert t.dtype is dtype and torch.equal(t.dequantize(), plain.dequantize() * 2.0**-104)
    zero = ao.nvfp4_quantize(x * 0, 16, torch.tensor(0.0))[0]
    assert zero.float().isnan().all()  # 0 / 0, as there


def test_nvfp4_has_one_scale_for_a_tensor():
    x, scales = torch.ones(3, 16, 32), torch.ones(3, 1, 1)
    with pytest.raises(AssertionError, match="tensor for each expert"):
        ao.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scales)
    scale, codes = ao.nvfp4_quantize(x)
    with pytest.raises(AssertionError, match="tensor for each expert"):
        ao.NVFP4Tensor(codes, scale, 16, torch.float32, scales)


def test_configurations_of_2025():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(32, 64, generator=generator)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32))
    weight = model[0].weight
    config = ao.MXLinearConfig(elem_dtype_weight_override="fp6_e3m2", elem_dtype_grad_output_override=torch.float8_e5m2)
    ao.quantize_(model, config)
    assert model[0].weight is weight
    left, right = gs.mx.quantize(x, "mxfp8_e4m3"), gs.mx.quantize(weight.detach(), "mxfp6_e3m2")
    assert_product(model(x), left, right.T, model[0].bias)
    grad = torch.randn(32, 32, generator=generator)
    model(x).backward(grad)
    left, right = gs.mx.quantize(grad, "mxfp8_e5m2", dim=0), gs.mx.quantize(x, "mxfp8_e4m3", dim=0)
    assert_product(weight.grad, left.T, right)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32))
    values = gs.mx.quantize(model[0].weight.detach(), "mxfp4/b16")
    ao.quantize_(model, ao.MXInferenceLinearConfig(16, torch.float4_e2m1fn_x2))
    assert type(model[0]) is ao.MXInferenceLinear
    assert torch.equal(model(x), torch.nn.functional.linear(x, values, model[0].bias))
    for kind in (ao.MXLinearConfig, ao.MXInferenceLinearConfig):
        with pytest.raises(AssertionError, match="elem_dtype"):
            kind(elem_dtype=torch.int8)
    t = ao.MXTensor.to_mx(x, torch.float8_e4m3fn)
    assert t.dequantize(output_dtype=torch.bfloat16).dtype is torch.bfloat16 and t.dequantize().dtype is torch.float32


def test_inference_layers_of_061_pass_gradients_on():
    model = nn.Sequential(nn.Linear(64, 32))
    ao.swap_linear_with_mx_inference_linear(model, torch.float8_e4m3fn, 32)
    x = values(2, 3, 64).requires_grad_()
    grad = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = model(x)
    out = model(x)
    out.backward(grad)
    twin = x.detach().requires_grad_()
    nn.functional.linear(twin, model[0].weight_mx.to_dtype(torch.float32)).backward(grad)
    assert torch.equal(out, want) and torch.equal(x.grad, twin.grad)
    assert torch.equal(model[0].bias.grad, grad.sum((0, 1)))
