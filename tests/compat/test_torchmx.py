"""``gemmsim.compat.torchmx``: torchmx's public vectors through its own names, and its layouts, fields and errors."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from support import mx as vectors
from torch import nn

import gemmsim as gs
from gemmsim.compat import torchao
from gemmsim.compat.torchmx import custom_float_cast, dtypes, env_variables, quant_api, utils
from gemmsim.compat.torchmx.config import MXConfig, QAttentionConfig, QLinearConfig
from gemmsim.compat.torchmx.layers.mx_linear import MXInferenceLinear
from gemmsim.compat.torchmx.mx_quantization_utils import round_to_even
from gemmsim.compat.torchmx.mx_tensor import (
    FromMXConstrFunc,
    MXTensor,
    NoopFwToMXBw,
    ToMXConstrFunc,
    dequantize_mx,
    quantize_mx,
)

ELEMENTS = {
    "fp8_e4m3": dtypes.float8_e4m3, "fp6_e2m3": dtypes.float6_e2m3, "fp6_e3m2": dtypes.float6_e3m2,
    "fp4_e2m1": dtypes.float4_e2m1, "int8": dtypes.int8,
}  # fmt: skip


def values(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def vector_sets():
    for key in vectors.archive("torchmx"):
        peer, *rest = key.split("|")
        if peer == "torchmx" and rest[-1] == "scale" and rest[0] in ("f32", "bf16", "bf16all"):
            yield rest[0], rest[1], key.removesuffix("|scale")


@pytest.mark.parametrize("exact", ["False", "True"])
@pytest.mark.parametrize("tensor, element, key", list(vector_sets()))
def test_public_vectors(tensor, element, key, exact, monkeypatch):
    monkeypatch.setattr(env_variables, "MX_EXACT_QUANTIZATION", exact)
    x = torch.from_numpy(vectors.inputs(tensor).copy()).bfloat16()
    scale, codes = (torch.from_numpy(t) for t in vectors.codes(key))
    found = ELEMENTS[element]
    got_scale, data = quantize_mx(x, found.name, 32)
    assert data.dtype == (torch.int8 if element == "int8" else torch.uint8)
    data = utils.unpack_uint4(data) if element == "fp4_e2m1" else data.view(torch.uint8)
    assert torch.equal(got_scale[:, 0], scale) and ((data == codes) | (scale == 255)[:, None]).all()


@pytest.mark.parametrize("element", ELEMENTS)
def test_short_last_blocks(element):
    data = vectors.archive("torchmx")
    x = torch.from_numpy(data["torchmx|pad37|x"]).bfloat16()
    t = MXTensor.to_mx(x, ELEMENTS[element])
    assert torch.equal(t._scale_e8m0, torch.from_numpy(data[f"torchmx|pad37|{element}|scale"]))
    assert torch.equal(t._data, torch.from_numpy(data[f"torchmx|pad37|{element}|data"]).view(t._data.dtype))
    assert torch.equal(t.to_dtype(torch.float32), torch.from_numpy(data[f"torchmx|pad37|{element}|deq"]))
    turned = t.t()
    facts = [*turned.shape, turned._block_dim, turned._padding]
    assert [key for key, want in data.items() if key.startswith(f"torchmx|pad37|{element}|") and want.tolist() == facts]
    again = MXTensor(t._scale_e8m0, t._data, ELEMENTS[element], 32, torch.bfloat16, t._padding)
    assert again.shape == t.shape and torch.equal(again.to_dtype(torch.float32), t.to_dtype(torch.float32))


@pytest.mark.parametrize("found", ELEMENTS.values(), ids=str)
def test_operators(found):
    x = values(4, 64)
    scales, data = quantize_mx(x, found.name, 32)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(quantize_mx, (x, found.name, 32), test_utils=checks)
    arguments = (data, scales, found.name, 32, torch.float32, 1)
    torch.library.opcheck(dequantize_mx, arguments, test_utils=checks)
    assert torch.equal(dequantize_mx(*arguments), MXTensor.to_mx(x, found).to_dtype(torch.float32))
    turned = (data.t(), scales.t(), found.name, 32, torch.float32, 0)
    assert torch.equal(dequantize_mx(*turned), dequantize_mx(*arguments).t())


def test_products_and_fields():
    a, b = MXTensor.to_mx(values(2, 5, 64), dtypes.float8_e4m3), MXTensor.to_mx(values(3, 64, seed=1), dtypes.int8)
    plain = a.to_dtype(torch.bfloat16), b.to_dtype(torch.bfloat16)
    bias = values(3, seed=2)
    assert torch.equal(nn.functional.linear(a, b), nn.functional.linear(*plain))
    assert torch.equal(
        nn.functional.linear(a, b, bias).flatten(0, 1), torch.addmm(bias, plain[0].flatten(0, 1), plain[1].t())
    )
    assert (a._block_size, a._block_dim, a._padding, a._orig_dtype) == (32, 2, 0, torch.bfloat16)
    a._orig_dtype = torch.float32
    assert a.to_dtype().dtype == torch.float32 and torch.equal(
        (a[0] @ b.t()), plain[0][0].float() @ plain[1].t().float()
    )
    four = MXTensor.to_mx(values(2, 3, 5, 64), dtypes.float4_e2m1)
    other = MXTensor.to_mx(values(2, 3, 7, 64, seed=4), dtypes.float4_e2m1)
    want = four.to_dtype() @ other.to_dtype().transpose(2, 3)
    assert torch.equal(torch.matmul(four, other.transpose(2, 3)), want)
    assert torch.equal(four.sum(-1), four.to_dtype().sum(-1))
    file = io.BytesIO()
    torch.save(four, file)
    file.seek(0)
    for twin in (torch.load(file, weights_only=True), copy.deepcopy(four), four.to(torch.float16)):
        assert type(twin) is MXTensor and twin._elem_dtype == dtypes.float4_e2m1
        assert torch.equal(twin.to_dtype(torch.float32), four.to_dtype(torch.float32))


def test_gradients():
    x = values(4, 64, dtype=torch.float32).requires_grad_()
    FromMXConstrFunc.apply(ToMXConstrFunc.apply(x, dtypes.float6_e2m3, 32), torch.float32).sum().backward()
    assert torch.equal(x.grad, torch.ones(4, 64))
    out = NoopFwToMXBw.apply(x * 1, dtypes.float8_e4m3, 32)
    seen = []
    out.grad_fn.next_functions[0][0].register_prehook(lambda grads: seen.append(grads[0]))
    with pytest.raises(gs.mx.MXOperatorError):
        out.sum().backward()
    assert isinstance(seen[0], MXTensor)


def test_types_and_configs():
    assert str(dtypes.float6_e3m2) == "float6_e3m2" and dtypes.STR_TO_SUPPORTED_ELEM_DTYPE["int8"].max_pow2 == 6
    assert dtypes.E8M0_EXPONENT_NAN_VAL == 255 and dtypes.int8 not in dtypes.SUPPORTED_FP_ELEM_DTYPES
    for found in dtypes.SUPPORTED_FP_ELEM_DTYPES:
        meaning = gs.formats.parse(found.name.split("_")[1])
        assert (found.max, found.max_pow2, found.has_nan) == (meaning.max, meaning.emax, meaning.has_nan)
    config = MXConfig("float8_e4m3")
    assert MXConfig.load_from_dict(config.to_dict()) == config and config.elem_dtype is dtypes.float8_e4m3
    linear = QLinearConfig(config, MXConfig("int8", 16))
    full = QAttentionConfig(linear, config, config, config, config)
    assert full.is_qkv_quantization_enabled and not QAttentionConfig(linear).is_qkv_quantization_enabled
    assert (
        QAttentionConfig.load_from_dict(full.to_dict()) == full
        and QLinearConfig.load_from_dict(linear.to_dict()) == linear
    )
    for call in (lambda: MXConfig("fp8"), lambda: MXConfig("int8", 0), lambda: QAttentionConfig(linear, config)):
        with pytest.raises(ValueError, match="allowed"):
            call()
    with pytest.raises(AssertionError):
        quantize_mx(torch.ones(33), "float4_e2m1", 33)


def test_custom_casts():
    x = torch.cat(
        [values(2000, dtype=torch.float32) * 200, torch.tensor([math.inf, -math.inf, -0.0, 2.0**-9, 2.0**-8])]
    )
    got = custom_float_cast.hp_to_floatx(x, 4, 3, 448.0)
    assert torch.equal(got, torch.where(x.isinf(), x, gs.quantize(x, "e4m3", overflow="clamp")))
    cut = custom_float_cast.hp_to_floatx(x.double(), 8, 13, dtypes.float22_e8m13.max, "truncate")
    assert torch.equal(cut[:2000], gs.quantize(x.double(), "e8m13", rounding="rtz")[:2000])
    low = torch.tensor([2.0**-7, 2.0**-6, -(2.0**-6) * 0.999])
    flushed = custom_float_cast.hp_to_floatx(low, 4, 3, 448.0, keep_subnormals=False)
    assert flushed.tolist() == [0.0, 2.0**-6, 0.0]
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match="round_to_even"):
            custom_float_cast.hp_to_floatx(x, 4, 3, 448.0, "up")


@pytest.mark.parametrize("mode", ["round_to_even", "truncate"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_largest_float22_and_infinities(dtype, mode):
    largest, end = dtypes.float22_e8m13.max, torch.finfo(dtype).max
    x = torch.tensor([end, -end, math.inf, -math.inf, math.nan, 1.0, -0.0], dtype=dtype)
    got = custom_float_cast.hp_to_floatx(x, 8, 13, largest, mode)
    want = [min(end, largest), -min(end, largest), math.inf, -math.inf]
    assert got.dtype == dtype and got[:4].tolist() == want and got[4].isnan() and got[5] == 1
    assert got[6] == 0 and not got[6].signbit()


def test_dictionaries_leave_out_what_is_none():
    linear = QLinearConfig(MXConfig("int8"), MXConfig("float8_e4m3", 16))
    plain = {"weights_config": {"elem_dtype_name": "int8", "block_size": 32}, "activations_config": {"elem_dtype_name": "float8_e4m3", "block_size": 16}}  # fmt: skip
    assert QAttentionConfig(linear).to_dict() == {"projection_config": plain}
    assert len({QAttentionConfig(linear), QAttentionConfig(QLinearConfig.load_from_dict(plain))}) == 1
    with pytest.raises(AssertionError, match="all or none"):
        QAttentionConfig(linear, query_config=linear.weights_config)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", [(4, 37), (3, 4, 37), (2, 3, 4, 37), (37,)], ids=str)
def test_linear_with_a_bias_in_every_mode(element, shape):
    x, w, bias = values(*shape), values(8, 37, seed=1), values(8, seed=2)
    x, w = (MXTensor.to_mx(t, ELEMENTS[element]) for t in (x, w))
    want = nn.functional.linear(x.to_dtype(), w.to_dtype(), bias)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(nn.functional.linear(x, w, bias), want)
            assert torch.equal(nn.functional.linear(x, w), nn.functional.linear(x.to_dtype(), w.to_dtype()))


def test_views_that_cut_blocks_are_assertion_errors():
    x = MXTensor.to_mx(values(11, 3, 5), dtypes.float8_e4m3, 2)
    assert torch.equal(x.view(33, 5).to_dtype(), x.to_dtype().view(33, 5))
    four = MXTensor.to_mx(values(5, 5, 3, 4), dtypes.int8, 2)
    for call in (
        lambda: x.view(165),
        lambda: x.transpose(1, 2).view(165),
        lambda: four.transpose(1, 3).view(25, 4, 3),
        lambda: x.view(7, 7),
    ):
        for error in (AssertionError, gs.ShapeError):
            with pytest.raises(error, match="allowed"):
                call()
    view = four.transpose(2, 3).view(25, 4, 3)
    assert torch.equal(view.to_dtype(), four.to_dtype().transpose(2, 3).reshape(25, 4, 3))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("size", [8, 11])
def test_gradients_of_casts(element, size):
    x, grad = torch.arange(size, dtype=torch.bfloat16).requires_grad_(), torch.arange(size) * 0.5
    for cast in (lambda t: t.to_dtype(torch.float32), lambda t: FromMXConstrFunc.apply(t, torch.float32)):
        found = cast(MXTensor.to_mx(x, ELEMENTS[element], 8))
        if element == "fp4_e2m1" and size % 8:
            with pytest.raises(ValueError, match="multiples of block_size"):
                found.backward(grad)
        else:
            x.grad = None
            found.backward(grad)
            assert torch.equal(x.grad, grad.bfloat16())


def test_functions_for_more_operators():
    ops = gs.compat.torchmx.ops
    a = MXTensor.to_mx(values(4, 32), dtypes.int8)
    b = MXTensor.to_mx(values(8, 32, seed=1), dtypes.int8)
    aten = torch.ops.aten
    assert torch.equal(ops.mx_mm(aten.mm.default, (), (a, b.t())), a @ b.t())
    with pytest.raises(gs.mx.MXOperatorError):
        torch.cos(a)

    @ops.implements([aten.cos.default])
    def cosine(operator, types, args, kwargs=None):
        return operator(args[0].to_dtype())

    try:
        assert torch.equal(torch.cos(a), a.to_dtype().cos())
    finally:
        gs.compat.torchmx.mx_tensor._IMPLEMENTED.clear()


def test_steps_of_quantisation(monkeypatch):
    steps = gs.compat.torchmx.mx_quantization_utils
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).view(-1, 32)
    for found in dtypes.SUPPORTED_ELEM_DTYPES:
        scales, codes = quantize_mx(x, found.name, 32)
        shared = steps.get_e8m0_shared_exponent(x, found)
        assert torch.equal(shared, scales[:, 0]) and torch.equal(
            shared, steps.get_e8m0_shared_exponent(x.float(), found)
        )
        again = steps.quantize_mx_with_e8m0_shared_exponent_simulated(x, found, shared[:, None], x.shape)
        assert again.dtype == codes.dtype and torch.equal(again, codes)
        if found != dtypes.int8:
            exact = steps.quantize_mx_with_e8m0_shared_exponent_hw_exact(x, found, shared[:, None])
            assert torch.equal(exact, codes)
            plain = steps.dequantize_to_dtype(codes, found, torch.float32) * steps.get_fp_scale(shared)[:, None]
            want = dequantize_mx(codes, scales, found.name, 32, torch.float32, 1)
            assert torch.equal(plain.nan_to_num(7), want.nan_to_num(7))
    with pytest.raises(AssertionError, match="allowed"):
        steps.get_e8m0_shared_exponent(x.double(), dtypes.int8)


def test_parts_of_floats():
    steps = gs.compat.torchmx.mx_quantization_utils
    for dtype, take in ((torch.bfloat16, steps.unpack_bfloat16), (torch.float32, steps.unpack_fp32), (torch.float64, steps.unpack_fp64)):  # fmt: skip
        x = torch.tensor([1.5, -2.0, 0.0, -0.0, math.inf], dtype=dtype)
        sign, exponent, fraction = take(x)
        digits, bias = {torch.bfloat16: (7, 127), torch.float32: (23, 127), torch.float64: (52, 1023)}[dtype]
        assert sign.tolist() == [0, 1, 0, 1, 0] and exponent.tolist() == [bias, bias + 1, 0, 0, 2 * bias + 1]
        assert fraction.tolist() == [2 ** (digits - 1), 0, 0, 0, 0]
        with pytest.raises(AssertionError):
            take(torch.ones(1, dtype=torch.float16))
    assert steps.leading_one_position(torch.tensor([0, 1, 2, 64, 65, 127, 128])).tolist() == [-1, 0, 1, 6, 6, 6, -1]
    assert steps.n_ones(3) == 7


def test_helpers(monkeypatch, tmp_path, capsys):
    assert utils.tensor_size_hp_to_fp4x2(torch.Size([3, 5]), 1) == [3, 3]
    assert utils.tensor_size_fp4x2_to_hp(torch.Size([3, 5]), 0) == [6, 5]
    utils.set_seed(3)
    x = utils.get_uniform_random_number(-2, 6, (50, 3), torch.float64)
    utils.set_seed(3)
    assert torch.equal(x, torch.rand(50, 3, dtype=torch.float64) * 8 - 2) and x.dtype == torch.float64
    monkeypatch.setattr(env_variables, "TORCHMX_LOG_FILE", str(tmp_path / "log"))
    for _ in range(2):
        logger = utils.get_logger("torchmx.test_helpers")
    logger.info("one line")
    assert (tmp_path / "log").read_text().count("one line") == 1
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
        handler.close()


def test_rounding_and_packing():
    m = torch.arange(64, dtype=torch.int32)
    for shift in range(5):
        assert round_to_even(m, shift).tolist() == [round(v / 2**shift) for v in range(64)]
    assert round_to_even(m, torch.full((64,), 2, dtype=torch.int32)).tolist() == [round(v / 4) for v in range(64)]
    codes = torch.arange(16, dtype=torch.uint8).view(4, 4)
    assert utils.pack_uint4(codes)[0].tolist() == [1, 0x23]
    for dim in (0, 1, -1):
        assert torch.equal(utils.unpack_uint4(utils.pack_uint4(codes, dim), dim), codes)


def test_layers():
    qconfig = QLinearConfig(MXConfig("float6_e3m2"), MXConfig("float8_e4m3"))
    model = nn.Sequential(nn.Linear(64, 32), nn.Sequential(nn.Linear(32, 8))).bfloat16()
    plain = copy.deepcopy(model)
    quant_api.quantize_linear_(model, qconfig)
    assert type(model[0]) is MXInferenceLinear and type(model[1][0]) is MXInferenceLinear
    x = values(4, 64)
    weight = gs.mx.quantize(plain[0].weight.detach(), "mxfp6_e3m2/torchmx")
    want = torch.addmm(plain[0].bias, gs.mx.quantize(x, "mxfp8_e4m3/torchmx"), weight.t())
    assert torch.equal(model[0](x), want)
    torchao.quantize_(plain, quant_api.mx_dynamic_activation_mx_weights())
    assert torch.equal(plain(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x)) and "float6_e3m2" in repr(model)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("element", ELEMENTS)
def test_layers_pass_gradients_on(element, compiled):
    torch._dynamo.reset()
    kind = MXConfig(ELEMENTS[element].name)
    model = nn.Sequential(nn.Linear(64, 32)).bfloat16()
    quant_api.quantize_linear_(model, QLinearConfig(kind, kind))
    layer = model[0]
    run = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiled else layer
    x, grad = values(2, 3, 64).requires_grad_(), values(2, 3, 32, seed=1)
    with torch.no_grad():
        want = layer(x)
    out = run(x)
    out.backward(grad)
    assert torch.equal(out, want) and x.grad.dtype == torch.bfloat16
    assert torch.equal(x.grad, grad @ layer.weight.to_dtype(torch.bfloat16))
    assert torch.equal(layer.bias.grad, grad.flatten(0, 1).sum(0)) and layer.weight.grad is None
    x.grad = layer.bias.grad = None
    layer.bias.requires_grad_(False)
    layer(x).backward(grad)
    assert x.grad is not None and layer.bias.grad is None
    assert not layer(x.detach()).requires_grad
