"""Casts to supernormal floats and the old binary8 formats: every value, midpoint and neighbour, against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

import gemmsim as gs
from gemmsim import reference
from gemmsim.backends import cpu
from gemmsim.formats import parse_cast

FORMATS = [
    "supernormal(4,3)",
    "supernormal(3,2,2,1,saturate,even_exponent)",
    "supernormal(1,2)",
    "supernormal(8,4)",
    "binary8(1)",
    "binary8(4)/ftz",
    "binary8(3,unsigned)",
    "binary8(2,unsigned,saturate_infty)/ftz",
    "binary8(7,saturate_infty)",
    "binary8(5,saturate_maxfloat)",
    "binary8(3,saturate_propagate)",
    "binary8(4,unsigned,saturate_propagate)/ftz",
]
MODES = ["rne", "rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "srb5", "src5", "sr20"]


def probes(fmt) -> list[float]:
    """Values, midpoints, quarters, their float64 neighbours, both signs; beyond the ends; specials."""
    values = [x for x in fmt.values() if x >= 0]
    values = values[:: max(1, len(values) // 120)] + values[:4] + values[-4:]
    values = sorted({*values, 2 * values[-1], 4 * values[-1]})
    points = {5e-324, 2.0**-149, 2.0**-126, 1e308, math.inf, 0.0}
    for a, b in zip(values, values[1:], strict=False):
        middle = (a + b) / 2
        for x in (a, middle, (a + middle) / 2, a + (b - a) * 0.7):
            points |= {x, math.nextafter(x, 0.0), math.nextafter(x, math.inf)}
    return [*sorted(points), *(-x for x in sorted(points)), math.nan]


@pytest.mark.parametrize("name", FORMATS)
def test_casts_are_the_references(name):
    fmt = gs.formats.parse_scalar(name)
    points = probes(fmt)
    policies = [""] if name.startswith("binary8") else ["", "/sat", "/clamp"]
    for mode in MODES:
        for policy in policies if mode in ("rne", "ru", "ro") else [""]:
            cast = parse_cast(f"{name}/{mode}{policy}")
            for dtype in (torch.float64, torch.float32):
                x = torch.tensor(points, dtype=torch.float64).to(dtype)
                exact = reference.quantize(x.double().tolist(), cast, seed=5)
                want = torch.tensor(exact, dtype=torch.float64).to(dtype)
                for isa in isas():
                    cpu.set_isa(isa)
                    got = torch.empty_like(x)
                    cpu.quantize(x, cast, got, 5)
                    assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{cast} {isa}")
    cpu.set_isa(isas()[0])


@pytest.mark.parametrize("name", ["supernormal(4,3)/sr6", "binary8(4)/ftz", "binary8(3,unsigned)/rtz"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_strides_and_threads(name, dtype):
    g = torch.Generator().manual_seed(3)
    x = (torch.randn(300, 260, generator=g) * 20).to(dtype)
    cast = parse_cast(name)
    torch.set_num_threads(1)
    want = torch.empty_like(x)
    cpu.quantize(x, cast, want, 9)
    part = torch.tensor(reference.quantize(x[:3].double().tolist(), cast, seed=9)).to(dtype)
    assert_bitwise_equal(want[:3], part, nan_is_nan=True)
    torch.set_num_threads(2)
    columns = x.T.contiguous().T
    got = torch.empty_strided(x.shape, (1, 600), dtype=dtype)
    cpu.quantize(columns, cast, got, 9)
    assert_bitwise_equal(got, want, nan_is_nan=True)


SPECS = [
    ":binary8(3)",
    ":binary8(1,unsigned,saturate_infty)",
    ":binary8(4,unsigned)/ftz/sr8",
    ":mul=binary8(4,saturate_infty), add=supernormal(4,3)",
    "supernormal(4,3) * binary8(3) : chunked(4, supernormal(5,2), fp32) -> binary8(4)/ftz",
    ":kahan(supernormal(4,3)/ro)",
    ":exact(supernormal(4,3))",
    ":binned(binary8(5))",
    ":pairwise(binary8(4)/ftz)",
    ":splitk(2, supernormal(4,3)/sr8, fp32)",
    ":supernormal(4,3,even_exponent)/ru, arithmetic=fp32",
]


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_the_references(text, dtype):
    spec = gs.GemmSpec.parse(text)
    assert gs.GemmSpec.from_json(spec.to_json()) == spec and spec.explain()
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(5, 37, generator=g).to(dtype), torch.randn(37, 4, generator=g).to(dtype)
    a[0, 3], a[1, 5], b[2, 1], a[2] = math.inf, math.nan, -0.0, a[2] * 1e5
    want = torch.tensor(reference.gemm(a, b, spec, seed=4), dtype=torch.float64).to(dtype)
    for isa in isas():
        cpu.set_isa(isa)
        got = torch.empty(5, 4, dtype=dtype)
        cpu.gemm(a, b, spec, got, 4)
        assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{text} {isa}")
    cpu.set_isa(isas()[0])
