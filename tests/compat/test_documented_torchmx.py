"""What torchmx's documentation says of each class and function, called with its documented defaults.

References are tables of all element values and a search in them, in numpy. Stored results of torchmx itself are in
test_torchmx.py, its layers of transformers in test_torchmx_llm.py.
"""

from __future__ import annotations

import inspect
import logging
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.fork import run_forked
from torch import Tensor, nn

import gemmsim as gs
from gemmsim.compat import torchao, torchmx
from gemmsim.compat.torchmx import MXTensor, dtypes, env_variables, mx_quantization_utils, ops, quant_api, utils
from gemmsim.compat.torchmx.config import MXConfig, QAttentionConfig, QLinearConfig
from gemmsim.compat.torchmx.custom_float_cast import hp_to_floatx
from gemmsim.compat.torchmx.layers.mx_linear import MXInferenceLinear
from gemmsim.compat.torchmx.mx_tensor import (
    FromMXConstrFunc,
    NoopFwToMXBw,
    ToMXConstrFunc,
    dequantize_mx,
    quantize_mx,
)

#: The table of the page on dtypes: largest value, largest power of two, bias, bits of exponent and fraction, torch's.
TABLE = {
    "float8_e4m3": (448.0, 8, 7, 4, 3, torch.float8_e4m3fn),
    "float6_e3m2": (28.0, 4, 3, 3, 2, None),
    "float6_e2m3": (7.5, 2, 1, 2, 3, None),
    "float4_e2m1": (6.0, 2, 1, 2, 1, None),
    "int8": (127.0, 6, 0, 0, 7, torch.int8),
}
KINDS = [dtypes.STR_TO_SUPPORTED_ELEM_DTYPE[name] for name in TABLE]
EACH = pytest.mark.parametrize("kind", KINDS, ids=str)
ATEN = torch.ops.aten


def grid(kind: dtypes.DType) -> np.ndarray:
    """Values of the codes from zero up to the largest one, in the order of the codes."""
    if kind == dtypes.int8:
        return np.arange(128.0)
    largest, _, bias, exponent_bits, fraction, _ = TABLE[kind.name]
    values = []
    for code in range(2 ** (exponent_bits + fraction)):
        exponent, trailing = code >> fraction, code & (2**fraction - 1)
        value = math.ldexp(trailing + (2**fraction if exponent else 0), max(exponent, 1) - bias - fraction)
        values += [value] if value <= largest else []
    return np.array(values)


def nearest(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The nearest of these values with the sign of ``x``, ties to the even code, beyond the largest it."""
    size = np.minimum(np.abs(x), values[-1])
    at = np.minimum(np.searchsorted(values, size, side="right") - 1, len(values) - 2)
    middle = (values[at] + values[at + 1]) / 2
    return np.copysign(values[at + ((size > middle) | ((size == middle) & (at % 2 == 1)))], x)


def every_block() -> Tensor:
    """All finite bfloat16 numbers, 32 neighbours in a block, which have one exponent; then mixed ones."""
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    mixed = torch.randn(4096, generator=torch.Generator().manual_seed(0)).bfloat16()
    return torch.cat([x[x.isfinite()], mixed]).view(-1, 32)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def scale_codes(blocks: Tensor, kind: dtypes.DType) -> np.ndarray:
    exponents = (blocks.view(torch.int16).numpy() >> 7) & 255
    return np.clip(exponents.max(-1) - TABLE[kind.name][1], 0, 254)


# dtypes, config


def test_the_table_of_dtypes():
    assert [kind.name for kind in dtypes.SUPPORTED_ELEM_DTYPES] == list(TABLE)
    for name, row in TABLE.items():
        kind = getattr(dtypes, name)
        found = (kind.max, kind.max_pow2, kind.exponent_bias, kind.exponent_bits, kind.mantissa_bits, kind.torch_dtype)
        assert found == row and kind.name == repr(kind) == name and dtypes.STR_TO_SUPPORTED_ELEM_DTYPE[name] is kind
        assert kind.max == grid(kind)[-1] and kind.max_pow2 == math.floor(math.log2(kind.max))
    made = dtypes.DType("x", 4.0, 2, 1, 2, 0, torch_dtype=torch.float8_e5m2)  # the documented fields
    assert (made.torch_dtype, made.has_nan, made.has_inf) == (torch.float8_e5m2, False, False)
    with pytest.raises(AttributeError):
        made.max = 5.0  # frozen


def test_configurations():
    config = MXConfig("float8_e4m3")
    assert config.block_size == 32 and config.elem_dtype is dtypes.float8_e4m3
    assert config.to_dict() == {"elem_dtype_name": "float8_e4m3", "block_size": 32}
    linear = QLinearConfig(weights_config=MXConfig("float6_e3m2", 16), activations_config=config)
    plain, full = QAttentionConfig(linear), QAttentionConfig(linear, config, config, config, config)
    assert not plain.is_qkv_quantization_enabled and full.is_qkv_quantization_enabled
    for one in (config, linear, plain, full):
        assert type(one).load_from_dict(one.to_dict()) == one
    for wrong in (lambda: MXConfig("fp8"), lambda: MXConfig("int8", 0)):
        with pytest.raises(ValueError, match="allowed"):
            wrong()


# mx_tensor


def test_operators_say_what_they_take():
    """``torch.library``'s own operators have (*args, **kwargs) there."""
    assert list(inspect.signature(quantize_mx).parameters) == ["data_hp", "elem_dtype_name", "block_size"]
    names = ["data_lp", "shared_exp_e8m0", "elem_dtype_name", "block_size", "target_dtype", "block_dim"]
    assert list(inspect.signature(dequantize_mx).parameters) == names
    x = randn(2, 3, 4, 64)
    scale, codes = quantize_mx(data_hp=x, elem_dtype_name="int8", block_size=32)
    assert scale.shape == (2, 3, 4, 2) and codes.shape == x.shape
    with pytest.raises(TypeError):
        inspect.signature(quantize_mx).bind(x, "int8")


@EACH
def test_quantising_and_back(kind):
    x = every_block()
    wide = x.double().numpy()
    codes = scale_codes(x, kind)
    want = nearest(wide * 2.0 ** (127.0 - codes[:, None]), grid(kind)) * 2.0 ** (codes[:, None] - 127.0)
    scale, data = quantize_mx(x, kind.name, 32)
    assert scale.dtype == torch.uint8 and data.dtype == (torch.int8 if kind == dtypes.int8 else torch.uint8)
    assert np.array_equal(scale[:, 0].numpy(), codes)
    values = dequantize_mx(data, scale, kind.name, 32, torch.float32, 1)
    fits = np.abs(want) >= 2.0**-126  # smaller results round once more, to float32
    assert np.array_equal(values.numpy()[fits], want.astype(np.float32)[fits]) and values.dtype == torch.float32
    t = MXTensor.to_mx(x, kind)
    assert t.shape == x.shape and t.dtype == torch.bfloat16 and t._block_size == 32
    assert torch.equal(t.to_dtype(torch.float32), values) and t.to_dtype(torch.bfloat16).dtype == torch.bfloat16


@EACH
def test_the_fake_kernels_have_the_same_shapes(kind):
    def both(x):
        scale, data = quantize_mx(x, kind.name, 32)
        return scale, data, dequantize_mx(data, scale, kind.name, 32, torch.bfloat16, 2)

    x = randn(2, 3, 64)
    real, fake = both(x), both(x.to("meta"))
    assert [(t.shape, t.dtype) for t in fake] == [(t.shape, t.dtype) for t in real]
    torch._dynamo.reset()
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")(x)
    assert all(torch.equal(a, b) for a, b in zip(compiled, real, strict=True))


@EACH
@pytest.mark.parametrize("size", [64, 37])
def test_differentiable_casts(kind, size):
    """Functions of autograd with ``forward(ctx, ...)``; ``padding`` is what the last block lacks."""
    assert all(issubclass(f, torch.autograd.Function) for f in (ToMXConstrFunc, FromMXConstrFunc, NoopFwToMXBw))
    x, padding = randn(4, size).float().requires_grad_(), -size % 32
    want = MXTensor.to_mx(x.detach(), kind, 32)
    for arguments in ((kind, 32, padding), (kind, 32), (kind,), (kind, 32, None)):
        t = ToMXConstrFunc.apply(x, *arguments)
        assert isinstance(t, MXTensor) and (t._padding, t.shape) == (padding, x.shape)
        assert torch.equal(t._data, want._data) and torch.equal(t._scale_e8m0, want._scale_e8m0)
    y = FromMXConstrFunc.apply(t, torch.bfloat16)
    assert y.shape == x.shape and torch.equal(y, want.to_dtype(torch.bfloat16))
    g = randn(4, size, seed=1)
    if padding and kind == dtypes.float4_e2m1:
        with pytest.raises(ValueError, match="short"):
            torch.autograd.grad(y, x, g)
    else:
        assert torch.equal(torch.autograd.grad(y, x, g)[0], g.float())
    ctx = SimpleNamespace()
    t = ToMXConstrFunc.forward(ctx, x.detach(), kind, 32, padding)
    assert torch.equal(FromMXConstrFunc.forward(ctx, t, torch.float32), want.to_dtype(torch.float32))
    for wrong in (padding + 1, padding + 32, -1):
        for error in (AssertionError, gs.ShapeError):
            with pytest.raises(error, match=f"allowed: {padding}"):
                ToMXConstrFunc.apply(x, kind, 32, wrong)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: FromMXConstrFunc.apply(ToMXConstrFunc.apply(x, kind, 32, padding), torch.float32),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    assert torch.equal(compiled(x.detach()), want.to_dtype(torch.float32))


def test_gradients_cast_to_mx():
    x = randn(4, 64).float().requires_grad_()
    y = NoopFwToMXBw.apply(x * 1, dtypes.float8_e4m3, 32)
    assert torch.equal(y, x)
    seen: list[object] = []
    y.grad_fn.next_functions[0][0].register_prehook(lambda grads: seen.append(grads[0]))
    with pytest.raises(gs.mx.MXOperatorError):  # the next operator would have to decode it unasked
        y.sum().backward()
    assert isinstance(seen[0], MXTensor) and torch.equal(seen[0].to_dtype(torch.float32), torch.ones(4, 64))
    with pytest.raises(AssertionError, match="elem_dtype"):
        NoopFwToMXBw.apply(x, "int8", 32)


@EACH
@pytest.mark.parametrize("size", [64, 37])
def test_the_constructor(kind, size):
    """Scales one for each block, flat as documented or with the dimensions of the codes as torchmx makes them."""
    want = MXTensor.to_mx(randn(6, size), kind)
    scale, data, padding = want._scale_e8m0, want._data, -size % 32
    for given in (scale, scale.flatten()):
        t = MXTensor(given, data, kind, 32, torch.bfloat16, padding)
        assert torch.equal(t.to_dtype(torch.float32), want.to_dtype(torch.float32)) and t.shape == (6, size)
        assert (t._padding, t._block_dim, t._orig_dtype, t._elem_dtype) == (padding, 1, torch.bfloat16, kind)
    turned = want.t()
    for dim in (0, -2):
        t = MXTensor(scale.t(), turned._data, kind, 32, torch.bfloat16, padding, dim)
        assert t.shape == (size, 6) and torch.equal(t.to_dtype(torch.float32), turned.to_dtype(torch.float32))
    row = MXTensor(scale[0], data[0], kind, 32, torch.bfloat16, padding)
    assert torch.equal(row.to_dtype(torch.float32), want.to_dtype(torch.float32)[0])


@EACH
def test_what_the_constructor_asserts(kind):
    scale, data = quantize_mx(randn(4, 64), kind.name, 32)
    rest = (32, torch.bfloat16)
    wrong = {
        "scale_e8m0_bits of torch.float32": (lambda: MXTensor(scale.float(), data, kind, *rest), gs.DTypeError),
        "scale_e8m0_bits of shape": (lambda: MXTensor(scale[None], data, kind, *rest), gs.ShapeError),
        "data_bits of torch.int64": (lambda: MXTensor(scale, data.long(), kind, *rest), gs.DTypeError),
        f"elem_dtype '{kind}'": (lambda: MXTensor(scale, data, kind.name, *rest), gs.FormatError),
        "elem_dtype e8m0": (lambda: MXTensor(scale, data, dtypes.e8m0, *rest), gs.FormatError),
        "padding=2": (lambda: MXTensor(scale, data, kind, *rest, 2), gs.ShapeError),
    }
    for words, (call, kind_of_error) in wrong.items():
        for error in (AssertionError, kind_of_error):
            with pytest.raises(error, match=words):
                call()
    with pytest.raises(AssertionError, match="float8_e4m3"):
        MXTensor.to_mx(randn(32), "e4m3")


def test_the_readme():
    x, y = randn(128, 128), randn(128, 128, seed=1)
    x_mx = MXTensor.to_mx(x, elem_dtype=dtypes.float8_e4m3, block_size=32)
    y_mx = MXTensor.to_mx(y, elem_dtype=dtypes.float6_e3m2, block_size=32)
    with pytest.warns(gs.mx.BlockDimWarning, match="blocks of b lie along dim -1"):
        out = torch.matmul(x_mx, y_mx)
    assert type(out) is Tensor and out.dtype == torch.bfloat16
    assert torch.equal(out, torch.matmul(x_mx.to_dtype(torch.bfloat16), y_mx.to_dtype(torch.bfloat16)))
    q, k = (MXTensor.to_mx(randn(2, 3, 5, 64, seed=s), dtypes.int8) for s in (2, 3))
    assert torch.equal(torch.matmul(q, k.transpose(2, 3)), q.to_dtype() @ k.to_dtype().transpose(2, 3))
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)).bfloat16()
    weight, bias = model[0].weight.detach(), model[0].bias
    qconfig = QLinearConfig(
        weights_config=MXConfig(elem_dtype_name="float6_e3m2", block_size=32),
        activations_config=MXConfig(elem_dtype_name="float8_e4m3", block_size=32),
    )
    quant_api.quantize_linear_(model=model, qconfig=qconfig)
    assert [type(m) for m in model] == [MXInferenceLinear, nn.ReLU, MXInferenceLinear]
    assert model(randn(16, 128)).shape == (16, 64)
    w_mx = MXTensor.to_mx(weight, dtypes.float6_e3m2).to_dtype(torch.bfloat16)
    assert torch.equal(model[0](x), nn.functional.linear(x_mx.to_dtype(torch.bfloat16), w_mx, bias))


def test_weights_and_activations_for_quantize():
    """``quantize_`` of torchao with the documented defaults: weights in float6_e3m2, activations in float8_e4m3."""
    model = nn.Sequential(nn.Linear(64, 32)).bfloat16()
    twin = nn.Sequential(nn.Linear(64, 32)).bfloat16()
    twin.load_state_dict(model.state_dict())
    torchao.quantize_(model, quant_api.mx_dynamic_activation_mx_weights())
    quant_api.quantize_linear_(twin, QLinearConfig(MXConfig("float6_e3m2"), MXConfig("float8_e4m3")))
    x = randn(4, 64)
    assert type(model[0]) is MXInferenceLinear and torch.equal(model(x), twin(x))


def test_functions_of_operators():
    t = MXTensor.to_mx(randn(4, 6, 64), dtypes.float8_e4m3)
    plain = t.to_dtype()
    assert torch.equal(ops.mx_cast_up_op(ATEN.sum.dim_IntList, (MXTensor,), (t, [0])), plain.sum(0))
    view = ops.mx_view_op(ATEN.view.default, (MXTensor,), (t, [24, 64]))
    assert torch.equal(view.to_dtype(), plain.view(24, 64))
    copy = ops.autocast_to_copy(ATEN._to_copy.default, (MXTensor,), (t,), {"dtype": torch.float16})
    assert copy._orig_dtype == torch.float16 and torch.equal(copy._data, t._data)
    short = MXTensor.to_mx(randn(4, 6, 37), dtypes.float8_e4m3)
    for error in (ValueError, AssertionError):
        with pytest.raises(error):
            short.view(4 * 6 * 37)


# mx_quantization_utils, custom_float_cast


def test_parts_of_numbers():
    x = torch.tensor([1.5, -2.0, 0.0, -0.0])
    for dtype, take, digits, bias in (
        (torch.bfloat16, mx_quantization_utils.unpack_bfloat16, 7, 127),
        (torch.float32, mx_quantization_utils.unpack_fp32, 23, 127),
        (torch.float64, mx_quantization_utils.unpack_fp64, 52, 1023),
    ):
        sign, exponent, mantissa = take(x.to(dtype))
        assert sign.tolist() == [0, 1, 0, 1] and exponent.tolist() == [bias, bias + 1, 0, 0]
        assert mantissa.tolist() == [2 ** (digits - 1), 0, 0, 0]
    parts = mx_quantization_utils.unpack_bfloat16(x.bfloat16())
    assert [t.dtype for t in parts] == [torch.uint8] * 3


def test_integers_rounded_to_even():
    """The page's example ends in [41, 27], which is neither 83 / 4 nor 109 / 8: by its rule it is [21, 14]."""
    mantissa = torch.tensor([0b1010011, 0b1101101], dtype=torch.int32)
    shift = torch.tensor([2, 3], dtype=torch.int32)
    assert mx_quantization_utils.round_to_even(mantissa, shift).tolist() == [21, 14] == [round(83 / 4), round(109 / 8)]
    every = torch.arange(128, dtype=torch.int32)
    for amount in range(6):
        want = [round(v / 2**amount) for v in range(128)]
        assert mx_quantization_utils.round_to_even(every, amount).tolist() == want
    assert mx_quantization_utils.n_ones(3) == 0b111
    places = mx_quantization_utils.leading_one_position(every)  # seven bits by default
    assert places.tolist() == [v.bit_length() - 1 for v in range(128)]


@EACH
def test_steps_of_quantisation(kind):
    blocks = every_block()
    shared = mx_quantization_utils.get_e8m0_shared_exponent(blocks, kind)
    assert shared.dtype == torch.uint8 and np.array_equal(shared.numpy(), scale_codes(blocks, kind))
    scales = mx_quantization_utils.get_fp_scale(shared)
    assert scales.dtype == torch.float32 and scales.tolist() == [2.0 ** (c - 127) for c in shared.tolist()]
    assert mx_quantization_utils.get_fp_scale(torch.tensor([255], dtype=torch.uint8)).isnan().all()
    want = quantize_mx(blocks, kind.name, 32)[1]
    steps = [mx_quantization_utils.quantize_mx_with_e8m0_shared_exponent_simulated]
    steps += [mx_quantization_utils.quantize_mx_with_e8m0_shared_exponent_hw_exact] if kind != dtypes.int8 else []
    for step in steps:
        assert torch.equal(step(blocks, kind, shared[:, None]), want)
        assert torch.equal(step(blocks, kind, shared[:, None], blocks.shape), want)
        with pytest.raises(AssertionError):
            step(blocks, dtypes.e8m0, shared[:, None])


@pytest.mark.parametrize("kind", KINDS[:-1], ids=str)
def test_codes_without_scales(kind):
    values = grid(kind)
    sign = {8: 128, 6: 32, 4: 8}[1 + kind.exponent_bits + kind.mantissa_bits]
    codes = torch.cat([torch.arange(len(values)), torch.arange(len(values)) + sign]).to(torch.uint8)
    want = torch.from_numpy(np.concatenate([values, -values])).bfloat16()
    take = mx_quantization_utils.dequantize_to_dtype
    assert torch.equal(take(codes, kind, torch.bfloat16, is_packed_fp4=False), want)
    packed = utils.pack_uint4(codes) if kind == dtypes.float4_e2m1 else codes
    assert torch.equal(take(packed, kind, torch.bfloat16), want)
    for wrong in (lambda: take(codes.int(), kind, torch.float32), lambda: take(codes, dtypes.e8m0, torch.float32)):
        with pytest.raises(AssertionError):
            wrong()


@pytest.mark.parametrize("kind", KINDS[:-1], ids=str)
def test_casts_to_floats_of_any_width(kind):
    """Saturating; what is no number stays."""
    cast = lambda x, **how: hp_to_floatx(x, kind.exponent_bits, kind.mantissa_bits, kind.max, **how)  # noqa: E731
    x = torch.cat([every_block().float().flatten(), torch.tensor([math.inf, -math.inf, math.nan])])
    values = grid(kind)
    finite = x[:-3].double().numpy()
    for dtype in (torch.float32, torch.float64):
        got = cast(x.to(dtype))
        assert got.dtype == dtype and np.array_equal(got[:-3].double().numpy(), nearest(finite, values))
        assert got[-3:-1].tolist() == [math.inf, -math.inf] and got[-1].isnan()
    cut = values[np.searchsorted(values, np.minimum(np.abs(finite), values[-1]), side="right") - 1]
    assert np.array_equal(cast(x, round_mode="truncate")[:-3].double().numpy(), np.copysign(cut, finite))
    smallest = 2.0 ** (1 - kind.exponent_bias)
    flushed = cast(torch.tensor([smallest * 0.75, smallest]), keep_subnormals=False)
    assert flushed.tolist() == [0.0, smallest]


# utils, env_variables


def test_packing_and_sizes():
    codes = torch.arange(16, dtype=torch.uint8).view(2, 4, 2)
    for dim in (0, 1, -1):
        packed = utils.pack_uint4(codes, dim)
        assert list(packed.shape) == utils.tensor_size_hp_to_fp4x2(codes.shape, dim)
        assert utils.tensor_size_fp4x2_to_hp(packed.shape, dim) == list(codes.shape)
        assert torch.equal(utils.unpack_uint4(packed, dim), codes)
    assert utils.pack_uint4(codes)[0, 0].item() == 0x01  # the first in the high half
    with pytest.raises(AssertionError):
        utils.pack_uint4(torch.zeros(3, dtype=torch.uint8))


def test_random_numbers():
    utils.set_seed(7)
    first = random.random(), np.random.rand(), utils.get_uniform_random_number(-3, 5, (1000,), torch.float32)
    utils.set_seed(7)
    again = random.random(), np.random.rand(), utils.get_uniform_random_number(-3, 5, (1000,), torch.float32)
    assert first[:2] == again[:2] and torch.equal(first[2], again[2]) and first[2].dtype == torch.float32
    assert -3 <= first[2].min() < -2.5 and 4.5 < first[2].max() < 5


def test_loggers():
    logger = utils.get_logger()
    assert isinstance(logger, logging.Logger) and logger.name == "TORCHMX" and logger.level == logging.INFO
    quiet = utils.get_logger("torchmx.quiet", console_output=False)
    assert not quiet.handlers
    for handler in [*logger.handlers]:
        assert handler.formatter._fmt == "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
        logger.removeHandler(handler)


@pytest.mark.parametrize("prefix", ["TORCHMX_", ""])
def test_variables_of_the_environment(prefix, tmp_path):
    """The documentation's names, and those that torchmx's code reads."""
    assert env_variables.MX_EXACT_QUANTIZATION in ("True", "False") and torchmx.env_variables is env_variables
    code = (
        f"import os; os.environ['{prefix}LOG_LEVEL'], os.environ['{prefix}LOG_FILE'] = 'DEBUG', {str(tmp_path / 'log')!r}\n"
        "import gemmsim.compat.torchmx.env_variables as env\n"
        "print(env.TORCHMX_LOG_LEVEL, env.TORCHMX_LOG_FILE, env.MX_EXACT_QUANTIZATION)"
    )
    done = run_forked(code)
    assert done.stdout.split() == ["DEBUG", str(tmp_path / "log"), "False"], done.stderr
