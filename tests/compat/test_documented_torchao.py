"""What torchao's documentation of mx_formats says of each class and function, called with its documented defaults.

References are tables of all element values and a search in them, in numpy; torch's own float8 dtypes say what their
codes mean. Bits of every version are in test_torchao.py, modules by version in test_torchao_modules.py.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gemmsim as gs
from gemmsim.compat import torchao as ao
from gemmsim.compat.torchao.prototype.mx_formats import MXGemmKernelChoice, MXLinearConfig, fp_format_spec, mx_tensor
from gemmsim.compat.torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2

#: Element type -> bits of exponent and fraction, the largest value, the exponent of the largest power of two.
ELEMENTS = {
    torch.float8_e4m3fn: (4, 3, 448.0, 8),
    torch.float8_e5m2: (5, 2, 57344.0, 15),
    DTYPE_FP6_E2M3: (2, 3, 7.5, 2),
    DTYPE_FP6_E3M2: (3, 2, 28.0, 4),
    torch.float4_e2m1fn_x2: (2, 1, 6.0, 2),
}
EACH = pytest.mark.parametrize("kind", ELEMENTS, ids=str)


def grid(kind) -> np.ndarray:
    """Values of the codes from zero up to the largest one, in the order of the codes."""
    exponent_bits, fraction, largest, _ = ELEMENTS[kind]
    bias = 2 ** (exponent_bits - 1) - 1
    values = []
    for code in range(2 ** (exponent_bits + fraction)):
        exponent, trailing = code >> fraction, code & (2**fraction - 1)
        value = math.ldexp(trailing + (2**fraction if exponent else 0), max(exponent, 1) - bias - fraction)
        values += [value] if value <= largest else []
    return np.array(values)


def nearest(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Codes of the nearest values, ties to the even code, beyond the largest it; the sign apart."""
    size = np.minimum(np.abs(x), values[-1])
    at = np.minimum(np.searchsorted(values, size, side="right") - 1, len(values) - 2)
    middle = (values[at] + values[at + 1]) / 2
    return at + ((size > middle) | ((size == middle) & (at % 2 == 1)))


def scale_codes(blocks: np.ndarray, kind, mode: str = "floor") -> np.ndarray:
    """e8m0 codes of blocks of float32 numbers, one a row."""
    _, fraction, largest, top = ELEMENTS[kind]
    amax = np.abs(blocks).max(-1)
    if mode == "rceil":
        scaled = amax.astype(np.float32) * np.float32(1 / largest)
        mantissa, exponent = np.frexp(scaled)
        code = exponent - 1 + (mantissa > 0.5)
        code = np.where(scaled < 2.0**-126, -127 + (scaled > 2.0**-127), code)
    elif mode == "even":
        mantissa, exponent = np.frexp(amax)
        code = exponent - 1 + (mantissa * 2 + 2.0 ** -(fraction + 1) >= 2) - top
    else:
        mantissa, exponent = np.frexp(amax)
        code = exponent - 1 + (mantissa > 0.5) * (mode == "ceil") - top
    return np.where(amax == 0, 0, np.clip(code, -127, 127) + 127)


def every_block() -> Tensor:
    """All bfloat16 numbers that are no NaN and infinity, 32 neighbours in a block: their exponents are the same."""
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    return torch.cat([x[x.isfinite()], torch.randn(4096, generator=torch.Generator().manual_seed(0)).bfloat16()]).view(
        -1, 32
    )


@EACH
def test_casts_to_mx_and_back(kind):
    """Floor is the default rule of scales; 32 the default block of tensors."""
    x = every_block()
    wide = x.double().numpy()
    codes = scale_codes(wide, kind)
    values = grid(kind)[nearest(wide * 2.0 ** (127.0 - codes[:, None]), grid(kind))]
    want = np.copysign(values * 2.0 ** (codes[:, None] - 127.0), wide)
    t = ao.MXTensor.to_mx(x, kind)
    assert isinstance(t, gs.mx.MXTensor) and t.shape == x.shape and t.dtype == torch.bfloat16 and t.block_size == 32
    assert np.array_equal(t.scale.view(torch.uint8)[:, 0].numpy(), codes)
    back = t.to_dtype(torch.float64)
    assert np.array_equal(back.numpy(), want) and np.array_equal(np.signbit(back.numpy()), np.signbit(want))
    assert t.to_dtype(torch.float).dtype == torch.float32
    scale, data = ao.to_mx(x, kind, 32)
    assert torch.equal(scale.view(torch.uint8), t.scale.view(torch.uint8)) and scale.dtype == torch.float8_e8m0fnu
    assert torch.equal(ao.to_dtype(data, scale, kind, 32, torch.float64), back)


@EACH
@pytest.mark.parametrize("mode", ["floor", "ceil", "even", "rceil"])
def test_rules_of_scales(kind, mode):
    x = torch.randn(4000, 32, generator=torch.Generator().manual_seed(1)) * torch.logspace(-30, 30, 4000)[:, None]
    edges = torch.tensor(
        [[v] * 32 for v in (0.0, 1.0, 448.0, 449.0, 1.875, 1.9375, 6.0, 7.5, 7.75, 28.0, 30.0, 57344.0)]
    )
    x = torch.cat([x, edges, edges.nextafter(torch.tensor(math.inf))])
    scale, _ = ao.to_mx(x, kind, 32, ao.ScaleCalculationMode(mode))
    assert np.array_equal(scale.view(torch.uint8)[:, 0].numpy(), scale_codes(x.numpy(), kind, mode))


def test_blocks_with_nan_and_infinity_are_nan():
    x = torch.ones(3, 32)
    x[0, 3], x[1, 4] = math.nan, math.inf
    t = ao.MXTensor.to_mx(x, torch.float8_e4m3fn)
    assert t.scale.view(torch.uint8)[:, 0].tolist() == [255, 255, 119]
    values = t.to_dtype(torch.float)
    assert values[:2].isnan().all() and torch.equal(values[2], x[2])


def test_values_of_scales():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    values = ao.get_fp_scale(codes)
    assert values.dtype == torch.float32 and values[255].isnan()
    assert values[:255].double().tolist() == [2.0 ** (c - 127) for c in range(255)]


def test_what_the_readme_says_is_not_supported():
    for call, kind in (
        (lambda: ao.MXTensor.to_mx(torch.ones(32), torch.int8), gs.FormatError),  # "MX int8 is not implemented yet"
        (lambda: ao.MXTensor.to_mx(torch.ones(32, dtype=torch.float64), torch.float8_e5m2), gs.DTypeError),
        (lambda: ao.MXTensor.to_mx(torch.ones(33), torch.float8_e5m2), gs.ShapeError),
        (lambda: ao.MXTensor.to_mx(torch.ones(64, 32).t(), torch.float8_e5m2), gs.ShapeError),
    ):
        for error in (AssertionError, kind):
            with pytest.raises(error, match="allowed"):
                call()


# Functions of autograd, and the constructor


@EACH
def test_differentiable_casts(kind):
    """Functions of autograd with ``forward(ctx, ...)``; going back they change nothing."""
    functions = mx_tensor.ToMXConstrFunc, mx_tensor.FromMXConstrFunc, mx_tensor.NoopFwToMXBw
    assert all(issubclass(f, torch.autograd.Function) for f in functions)
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    g = torch.randn(4, 64)
    for arguments, block in (((kind, 16), 16), ((kind,), 32)):
        t = ao.ToMXConstrFunc.apply(x, *arguments)
        assert isinstance(t, ao.MXTensor) and t.block_size == block
        y = ao.FromMXConstrFunc.apply(t, torch.bfloat16)
        assert torch.equal(y, ao.MXTensor.to_mx(x.detach(), kind, block).to_dtype(torch.bfloat16))
        assert torch.equal(torch.autograd.grad(y, x, g.bfloat16())[0], g.bfloat16().float())
    ctx = SimpleNamespace()
    t = ao.ToMXConstrFunc.forward(ctx, x.detach(), kind, 32)
    assert torch.equal(ao.FromMXConstrFunc.forward(ctx, t, torch.float32), t.to_dtype(torch.float32))
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: ao.FromMXConstrFunc.apply(ao.ToMXConstrFunc.apply(x, kind, 32), torch.float32),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    assert torch.equal(compiled(x), t.to_dtype(torch.float32))
    with pytest.raises(AssertionError, match="elem_dtype"):
        ao.ToMXConstrFunc.apply(x, "e4m3", 32)


def test_gradients_cast_to_mx():
    x = torch.randn(4, 64, requires_grad=True)
    y = ao.NoopFwToMXBw.apply(x * 1, torch.float8_e5m2, 32)
    assert torch.equal(y, x)
    seen: list[object] = []
    y.grad_fn.next_functions[0][0].register_prehook(lambda grads: seen.append(grads[0]))
    with pytest.raises(gs.mx.MXOperatorError):  # the next operator would have to decode it unasked
        y.sum().backward()
    assert isinstance(seen[0], ao.MXTensor) and torch.equal(seen[0].to_dtype(torch.float32), torch.ones(4, 64))


@EACH
def test_the_constructor_takes_what_the_cast_gives(kind):
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    scale, data = ao.to_mx(x, kind, 32)
    want = ao.to_dtype(data, scale, kind, 32, torch.bfloat16)
    for given in (scale, scale.flatten()):  # one scale a block: flat, or with the dimensions of the codes
        t = ao.MXTensor(data, given, kind, 32, torch.bfloat16)
        assert torch.equal(t.dequantize(), want) and t.scale.shape == (6, 2) and t.kernel_preference is None
    wrong = {
        "scale.dtype": (lambda: ao.MXTensor(data, scale.view(torch.uint8), kind, 32, torch.float32), gs.DTypeError),
        "qdata.dtype": (
            lambda: ao.MXTensor(data.view(torch.uint8).long(), scale, kind, 32, torch.float32),
            gs.DTypeError,
        ),
        "scale of shape": (lambda: ao.MXTensor(data, scale[:5], kind, 32, torch.float32), gs.ShapeError),
        "elem_dtype": (lambda: ao.MXTensor(data, scale, "e4m3", 32, torch.float32), gs.FormatError),
    }
    for words, (call, kind_of_error) in wrong.items():
        for error in (AssertionError, kind_of_error):
            with pytest.raises(error, match=words):
                call()


# Layers


def test_training_layers_in_place_of_linear_ones():
    """Three products of operands in MX; it trains."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    first, last = model[0].weight, model[2].weight
    ao.swap_linear_with_mx_linear(model, torch.float8_e4m3fn, 32, filter_fn=lambda mod, fqn: fqn != "2")
    assert isinstance(model[0], ao.MXLinear) and type(model[2]) is nn.Linear
    assert model[0].weight is first and model[2].weight is last
    ao.swap_linear_with_mx_linear(model, torch.float8_e4m3fn, 32)
    x = torch.randn(16, 32)

    def decoded(t: Tensor) -> Tensor:
        return ao.MXTensor.to_mx(t.detach(), torch.float8_e4m3fn, 32).to_dtype(t.dtype)

    assert torch.equal(model[0](x), decoded(x) @ decoded(first).t() + model[0].bias)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    with pytest.warns(gs.mx.BlockDimWarning):
        for _ in range(30):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_inference_layers_keep_their_weight_in_mx():
    model = nn.Sequential(nn.Linear(32, 64, dtype=torch.bfloat16))
    weight, bias, x = model[0].weight.detach().clone(), model[0].bias, torch.randn(3, 32).bfloat16()
    ao.swap_linear_with_mx_inference_linear(model, torch.float8_e4m3fn, 32)
    want = ao.MXTensor.to_mx(weight, torch.float8_e4m3fn, 32)
    assert isinstance(model[0], ao.MXInferenceLinear) and isinstance(model[0].weight_mx, ao.MXTensor)
    assert torch.equal(model[0](x), nn.functional.linear(x, want.to_dtype(torch.bfloat16), bias))


def test_training_by_a_configuration():
    model = nn.Sequential(nn.Linear(32, 32))
    config = MXLinearConfig(
        elem_dtype=torch.float8_e4m3fn, block_size=32, gemm_kernel_choice=MXGemmKernelChoice.EMULATED,
        scale_calculation_mode=ao.ScaleCalculationMode.RCEIL,
    )  # fmt: skip
    weight = model[0].weight.detach()
    ao.quantize_(model, config)
    x = torch.randn(4, 32, requires_grad=True)

    def decoded(t: Tensor) -> Tensor:
        return ao.MXTensor.to_mx(
            t.detach().contiguous(), torch.float8_e4m3fn, 32, config.scale_calculation_mode
        ).to_dtype(t.dtype)

    y = model(x)
    assert torch.equal(y, decoded(x) @ decoded(weight).t() + model[0].bias)
    g = torch.randn(4, 32)
    assert torch.equal(torch.autograd.grad(y, x, g)[0], decoded(g) @ decoded(weight.t()).t())
    assert MXLinearConfig().block_size == 32 and MXLinearConfig().elem_dtype == torch.float8_e4m3fn


def test_inference_by_configurations():
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(4)).bfloat16()
    linear = nn.Linear(64, 32, dtype=torch.bfloat16)
    for config in (ao.MXDynamicActivationMXWeightConfig(), ao.NVFP4WeightOnlyConfig()):
        model = nn.Sequential(nn.Linear(64, 32, dtype=torch.bfloat16))
        model.load_state_dict({f"0.{name}": value for name, value in linear.state_dict().items()})
        ao.quantize_(model, config)
        weight = model[0].weight
        if isinstance(config, ao.NVFP4WeightOnlyConfig):
            assert isinstance(weight, ao.NVFP4Tensor)
            left = x
        else:
            assert isinstance(weight, ao.MXTensor) and config.scaling_mode is ao.ScaleCalculationMode.RCEIL
            left = ao.MXTensor.to_mx(x, torch.float8_e4m3fn, 32, ao.ScaleCalculationMode.RCEIL).dequantize()
        assert torch.equal(model(x), nn.functional.linear(left, weight.dequantize(), linear.bias))


# Elements, packing, tiles, NVFP4


@pytest.mark.parametrize(
    "kind, encode, decode",
    [
        (DTYPE_FP6_E2M3, ao.f32_to_f6_e2m3_unpacked, ao.f6_e2m3_unpacked_to_f32),
        (DTYPE_FP6_E3M2, ao.f32_to_f6_e3m2_unpacked, ao.f6_e3m2_unpacked_to_f32),
        (torch.float4_e2m1fn_x2, ao.f32_to_f4_unpacked, ao.f4_unpacked_to_f32),
    ],
)
def test_codes_of_single_elements(kind, encode, decode):
    values = grid(kind)
    codes = torch.arange(2 * len(values), dtype=torch.uint8)
    want = np.concatenate([values, -values])
    assert np.array_equal(decode(codes).numpy(), want) and torch.equal(encode(decode(codes)), codes)
    x = np.concatenate([np.arange(-40, 40, 1 / 64), [1e30, -1e30]]).astype(np.float32)
    sign = np.signbit(x) * len(values)
    assert np.array_equal(encode(torch.from_numpy(x)).numpy(), nearest(x.astype(np.float64), values) + sign)


def test_packing_of_four_bits():
    codes = torch.arange(16, dtype=torch.uint8).view(2, 8)
    packed = ao.pack_uint4(codes)
    assert packed[0].tolist() == [0x10, 0x32, 0x54, 0x76] and torch.equal(ao.unpack_uint4(packed), codes)


def test_scales_in_tiles_of_128_by_4():
    scales = torch.arange(200 * 6, dtype=torch.int32).remainder(251).to(torch.uint8).view(200, 6)
    tiled = ao.to_blocked(scales)
    assert tiled.shape == (256 * 8,)
    for row, column in itertools.product((0, 31, 32, 127, 128, 199), range(6)):
        r, c = row % 128, column % 4
        tile = (row // 128) * 2 + column // 4
        assert tiled[tile * 512 + (r % 32) * 16 + (r // 32) * 4 + c] == scales[row, column]
    assert torch.equal(ao.from_blocked(tiled, 200, 6), scales)


@pytest.mark.parametrize("of_tensor", [False, True])
def test_nvfp4(of_tensor):
    x = torch.randn(50, 32, generator=torch.Generator().manual_seed(5)) * torch.logspace(-3, 3, 50)[:, None]
    second = ao.per_tensor_amax_to_scale(x.abs().amax()) if of_tensor else None
    assert second is None or second.item() == (x.abs().amax() / (448.0 * 6.0)).item()
    scale, codes = ao.nvfp4_quantize(x, per_tensor_scale=second)
    blocks = x.view(50, 2, 16)
    wanted = blocks.abs().amax(-1) / 6.0
    wanted = wanted if second is None else wanted / second
    wanted = wanted.clamp(2.0**-6, 448.0).to(torch.float8_e4m3fn)
    assert torch.equal(scale.view(torch.uint8), wanted.view(torch.uint8))
    inverse = 1.0 / wanted.float() if second is None else (1.0 / second) / wanted.float()
    scaled = (blocks * inverse[..., None]).double().numpy()
    values = grid(torch.float4_e2m1fn_x2)
    want = nearest(scaled, values) + np.signbit(scaled) * 8
    assert np.array_equal(ao.unpack_uint4(codes).view(50, 2, 16).numpy(), want)


# fp_format_spec

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS += (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fields_of_floats_are_those_of_torchs_dtypes(dtype):
    spec = fp_format_spec
    width = torch.empty(0, dtype=dtype).element_size() * 8
    assert spec.dtype_to_bitwidth[dtype] == sum(spec.dtype_to_sem_len[dtype]) == width
    integers = spec.dtype_to_int_dtype[dtype]
    codes = torch.randint(-(2 ** (width - 1)), 2 ** (width - 1), (400,), generator=torch.Generator().manual_seed(6))
    codes = torch.arange(256) - 128 if width == 8 else codes
    for x in codes.to(integers).view(dtype):
        fields = spec.get_sem_bits(x, width)
        assert [len(f) for f in fields] == list(spec.dtype_to_sem_len[dtype])
        assert int("".join(fields), 2) == x.view(integers).item() % 2**width
        found = spec.sem_bits_to_sem_vals(*fields, dtype)
        spec.assert_same(x.double().item() if width > 8 else x.float().item(), spec.sem_vals_to_f32(*found))
        if found[3] is None:
            assert found[1] == spec.exp_encoding_to_exp(fields[1], dtype)
            assert eval(spec.sem_vals_to_formula(*found).replace("^", "**")) == spec.sem_vals_to_f32(*found)
            assert found[1] - int(fields[1], 2) == -spec.dtype_to_exp_bias[dtype] + (int(fields[1], 2) == 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_notable_numbers_of_floats(dtype):
    info, rows = torch.finfo(dtype), {row[4]: row for row in fp_format_spec.dtype_to_interesting_values[dtype]}
    wanted = {"zero": 0.0, "largest_normal": info.max, "largest_normal_neg": -info.max, "smallest_normal": info.tiny}
    step = 2.0 ** -fp_format_spec.dtype_to_sem_len[dtype][2]  # finfo(float8_e5m2fnuz).eps is half of it
    wanted |= {"smallest_denormal": info.tiny * step, "largest_denormal": info.tiny * (1 - step)}
    assert {note: rows[note][0] for note in wanted} == wanted
    assert ("zero_neg" in rows) == (dtype not in FLOATS[-2:])
    assert ("inf" in rows) == ("inf_neg" in rows) == (dtype not in (torch.float8_e4m3fn, *FLOATS[-2:]))
    integers = fp_format_spec.dtype_to_int_dtype[dtype]
    for value, *bits, _ in rows.values():
        code = int("".join(bits), 2)
        code -= 2 ** (8 * info.bits // 8) * (bits[0] == "1")
        x = torch.tensor(code, dtype=torch.int64).to(integers).view(dtype).float().item()
        fp_format_spec.assert_same(value, x)
    assert math.isnan(rows["nan"][0])


@pytest.mark.parametrize(
    "kind, rows",
    [
        (DTYPE_FP6_E2M3, fp_format_spec.float6_e2m3_interesting_values),
        (DTYPE_FP6_E3M2, fp_format_spec.float6_e3m2_interesting_values),
        (torch.float4_e2m1fn_x2, fp_format_spec.float4_e2m1_interesting_values),
    ],
    ids=str,
)
def test_notable_numbers_of_small_floats(kind, rows):
    values = grid(kind)
    for value, formula, *bits, note in rows:
        code = int("".join(bits[1:]), 2)
        assert value == (-1 if bits[0] == "1" else 1) * values[code] == eval(formula.replace("^", "**"))
        assert note.endswith("_neg") == (bits[0] == "1")
    found = {note: abs(value) for value, *_, note in rows if not note.endswith("_neg")}
    fraction = ELEMENTS[kind][1]
    assert found["largest_normal"] == values[-1] and found["smallest_normal"] == values[2**fraction]
    assert found["smallest_denormal"] == values[1]
    assert found.get("largest_denormal", values[1]) == values[2**fraction - 1]
    if kind == torch.float4_e2m1fn_x2:
        assert sorted(found.values()) == values.tolist()


def test_printing_and_refusals(capsys):
    spec = fp_format_spec
    spec.run(torch.float8_e4m3fn)
    out = capsys.readouterr().out.splitlines()
    assert (
        out[0] == "dtype torch.float8_e4m3fn"
        and len(out) == len(spec.dtype_to_interesting_values[torch.float8_e4m3fn]) + 4
    )
    assert "448.0" in "".join(out) and "1 * 2^8 * 1.75" in "".join(out)
    for kind in (DTYPE_FP6_E2M3, torch.float4_e2m1fn_x2):
        spec.run(kind)
    assert spec.get_sem_bits(torch.tensor([0b1011], dtype=torch.uint8), bitwidth=4) == ("1", "01", "1")
    for call, kind in (
        (lambda: spec.get_sem_bits(torch.ones(2), 32), gs.ShapeError),
        (lambda: spec.get_sem_bits(torch.ones(1), 16), gs.FormatError),
        (lambda: spec.get_sem_bits(torch.ones(1, dtype=torch.int32), 32), gs.FormatError),
        (lambda: spec.run(torch.int8), gs.FormatError),
        (lambda: spec.exp_encoding_to_exp("01", "fp7"), gs.FormatError),
        (lambda: spec.assert_same(1.0, math.nan), AssertionError),
    ):
        for error in (AssertionError, kind):
            with pytest.raises(error, match="allowed"):
                call()
