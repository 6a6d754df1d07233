"""Finite floats and scaled blocks on the CPU against the reference in Fractions."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support.cpu import isas

import gemmsim as gs
from gemmsim import reference
from gemmsim.backends import cpu
from gemmsim.formats import FiniteFloatFormat, FormatError, ScaledBlockFormat, TensorFormat, parse, parse_cast
from gemmsim.ops import derive_seed

NAMES = [
    "FP[1|4|3,7](_N)",
    "FP[1|5|10,15](FN)",
    "FP[0|4|4,7](FN)",
    "FP[1|2|1,1](_N)",
    "FP[1|4|0,7](_N)",
    "FP[1|3|0,-20](_N)",
    "FP[1|8|7,127](FN)",
    "FP[1|8|0,127](_N)",
    "FP[1|8|23,127](FN)",
    "FP[1|7|22,3](_N)",
    "MXFP8[E4M3]{5}",
    "MXFP8[E5M2]{7,0}",
    "MXFP4[E2M1]{4,1}",
    "MXFP5[E4M0]{3}",
    "MXFP12[E8M3]{4}",
    "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}",
    "SBFP<XP[8,0](_SN)><FP[0|5|10,9](_N)>{3,0}",
    "SBFP<XP[24,0](CSN)><FP[1|8|0,127](_U)>{5,1}",
]
MODES = ["rne", "rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "srb8", "src20"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPECIALS = [
    2.0**-149,
    -(2.0**-140),
    math.inf,
    -math.inf,
    math.nan,
    0.0,
    -0.0,
    3.4e38,
    -1e38,
    480.0,
    496.0,
    495.9,
    2.0**-6,
]


def data(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    x = torch.randn(shape, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-14, 12, shape, generator=g))
    flat = x.reshape(-1)
    for i in range(0, flat.numel(), 4):
        kind = rng.random()
        if kind < 0.3:
            flat[i] = rng.choice(SPECIALS)
        elif kind < 0.6:
            flat[i] = rng.randint(-40, 40) * 2.0 ** rng.randint(-14, 5)
        elif kind < 0.65:
            flat[i] = rng.choice([1, -3]) * 2.0 ** rng.randint(-150, -120)
    return x.to(dtype)


def expected(x: torch.Tensor, fmt: TensorFormat, seed: int) -> torch.Tensor:
    found = reference.quantize_tensor(x.double().reshape(-1).tolist(), x.shape, fmt, seed)
    return torch.tensor(found, dtype=torch.float64).float().to(x.dtype).view(x.shape)


@pytest.mark.parametrize("name", NAMES)
def test_every_rounding_dtype_and_instruction_set(name):
    rng = random.Random(name)
    for mode in MODES:
        fmt = parse(f"{name}/{mode}")
        for dtype in DTYPES:
            x = data(rng, (4, 3, 9), dtype) if rng.random() < 0.5 else data(rng, (9, 4, 3), dtype).permute(1, 2, 0)
            want = expected(x, fmt, 7)
            for isa in isas():
                cpu.set_isa(isa)
                got = torch.empty_like(x)
                cpu.quantize_tensor(x, fmt, got, 7)
                assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{fmt} {dtype} {isa}")
    cpu.set_isa(isas()[0])


@pytest.mark.parametrize("name", ["FP[1|4|3,7](_N)", "MXFP8[E4M3]{64}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FS)>{16}"])
def test_long_runs_and_wrong_scalers(name):
    if "(FS)" in name:
        with pytest.raises(FormatError, match="not stochastic"):
            parse(name)
        return
    x = data(random.Random(name), (3, 5000), torch.float32)
    got = torch.empty_like(x)
    cpu.quantize_tensor(x, parse(name), got)
    assert_bitwise_equal(got, expected(x, parse(name), 0), nan_is_nan=True)


@pytest.mark.parametrize(
    "name", ["MXFP8[E4M3]{5000}", "SBFP<XP[8,0](CSN)><FP[0|5|10,15](_N)>{3000,0}", "FP[1|4|3,7](_S)"]
)
def test_large_tensors_whatever_the_threads_and_strides(name):
    fmt = parse(name)
    x = torch.randn(1100, 1024, generator=torch.Generator().manual_seed(1))
    torch.set_num_threads(1)
    want = torch.empty_like(x)
    cpu.quantize_tensor(x, fmt, want, 3)
    torch.set_num_threads(2)
    got = torch.empty(1100, 2048)[:, ::2]
    cpu.quantize_tensor(x.T.contiguous().T, fmt, got, 3)
    assert_bitwise_equal(got, want)
    cpu.quantize_tensor(x, fmt, x, 3)  # in place
    assert_bitwise_equal(x, want)
    assert len(want.unique()) > 60


WIDE = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.integers(-64, 64).map(lambda k: k / 16)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(WIDE, min_size=1, max_size=12),
    st.integers(1, 8),
    st.integers(0, 22),
    st.integers(1, 6),
    st.integers(2, 24),
    st.booleans(),
)
def test_any_widths_and_blocks(values, exponent, trailing, block, bits, flush):
    x = torch.tensor(values)
    bias = 127 if exponent == 8 else None
    floats = FiniteFloatFormat(exponent, trailing, bias, flush)
    scaled = ScaledBlockFormat(FiniteFloatFormat(exponent, trailing), None, block)
    integers = ScaledBlockFormat(parse_cast(f"fixed({bits},0,symmetric)"), floats, block)
    for fmt in (floats, scaled, integers):
        assert parse(str(fmt)) == fmt
        assert_bitwise_equal(gs.quantize(x, fmt), expected(x, fmt, 0), nan_is_nan=True, context=str(fmt))


def test_by_hand():
    x = torch.tensor([0.0, -0.0, 500.0, -math.inf, math.nan, 2.0**-6 - 2.0**-30, 1.0625, 1.1875])
    want = [0.0, 0.0, 480.0, -480.0, math.nan, 2.0**-6, 1.0, 1.25]
    assert_bitwise_equal(gs.quantize(x, "FP[1|4|3,7](_N)"), torch.tensor(want), nan_is_nan=True)
    assert gs.quantize(x, "FP[1|4|3,7](FN)")[5].item() == 0.0
    assert gs.quantize(x, "FP[0|4|3,7](_N)")[3].item() == 480.0
    assert gs.quantize(torch.tensor([3.4e38, math.inf]), "FP[1|8|2,127](_N)").tolist() == [math.inf, math.inf]
    assert gs.quantize(torch.tensor([1.0, 60.0, 0.1]), "MXFP8[E4M3]{3}").tolist() == [1.0, 60.0, 0.1015625]
    scaled = gs.quantize(torch.tensor([7.0, 3.4, -2.6, 0.0]), "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{4}")
    assert scaled.tolist() == [7.0, 3.0, -3.0, 0.0]
    still = gs.quantize(torch.tensor([1.3, math.nan]), "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{4}")
    assert_bitwise_equal(still, torch.tensor([1.3, math.nan]), nan_is_nan=True)


SPECS = [
    "BFP[8|8]{16}(SN) : fp32",
    "FP[1|4|3,7](FN) * MXFP8[E4M3]{8} : e5m10",
    "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{5} : chunked(8, e5m10, fp32)",
    "XP[8,+4](CSN) * FP[1|5|10,15](FS) : fp32 -> bf16",
    "MXINT8{32} * : exact(fp32)",
]


@pytest.mark.parametrize("text", SPECS)
def test_products_are_the_references(text):
    spec = gs.GemmSpec.parse(text)
    assert gs.GemmSpec.parse(str(spec)) == spec == gs.GemmSpec.from_json(spec.to_json())
    assert str(spec.a) in spec.explain()
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(5, 37, generator=g), torch.randn(37, 4, generator=g, requires_grad=True)
    seed = derive_seed(3, 0) if spec.is_stochastic else 0
    want = torch.tensor(reference.gemm(a, b.detach(), spec, seed=seed), dtype=torch.float64).float()
    got = gs.qmatmul(a, b, spec, seed=3)
    assert_bitwise_equal(got.detach(), want)
    got.sum().backward()
    assert b.grad.shape == b.shape and bool(b.grad.isfinite().all())


@pytest.mark.parametrize("text", [":FP[1|4|3,7](_N)", "MXFP8[E4M3]{32,0} : fp32", ": fp32 -> MXFP8[E4M3]{32}"])
def test_what_they_are_not_for_is_refused(text):
    with pytest.raises(gs.SpecError):
        gs.GemmSpec.parse(text)


@pytest.mark.parametrize("name", ["FP[1|4|3,7](_N)", "MXFP8[E4M3]{4,0}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{5}"])
def test_as_an_operator(name):
    x = torch.randn(5, 6, 7, generator=torch.Generator().manual_seed(2))
    want = torch.stack([gs.quantize(x[:, i], name) for i in range(6)])  # which loads the operators
    torch.library.opcheck(torch.ops.gemmsim.quantize.default, (x, name))
    assert_bitwise_equal(torch.vmap(lambda t: torch.ops.gemmsim.quantize(t, name), in_dims=1)(x), want)
    compiled = torch.compile(lambda t: gs.quantize(t, name) + 1, fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(x), gs.quantize(x, name) + 1)
    out = torch.empty_like(x, dtype=torch.float64)
    assert_bitwise_equal(gs.quantize(x, name, rounding="rtz", out=out).float(), gs.quantize(x, f"{name}/rtz"))
    assert gs.quantizer(name, name)(x.requires_grad_()).shape == x.shape


@pytest.mark.parametrize(
    "text",
    ["FP[1|9|3,7](_N)", "FP[1|4|3,7](_X)", "BFP[8|7]{64}(SN)", "BFP[1|8]{64}(SN)", "MXFP9[E4M3]{32}", "MXFP8[E4M3]{0}",
     "SBFP<XP[4,1](CSN)><FP[0|4|4,7](FN)>{16}", "XP[8,0](CSN)x", "BFP[8|8]{64}(SN)/sat", "FP[1|4|3,200](_N)"],
)  # fmt: skip
def test_impossible_names_are_refused(text):
    with pytest.raises(FormatError):
        parse(text)
