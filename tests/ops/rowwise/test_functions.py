"""Elementary functions: correctly rounded, against enclosures in integers and (independently) MPFR, on every ISA."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import assert_bitwise_equal

from gemmsim.backends import cpu
from gemmsim.formats import parse_cast
from gemmsim.reference import apply_function

gmpy2 = pytest.importorskip("gmpy2")
FUNCTIONS = ["exp", "log", "tanh", "erf", "density", "sigmoid", "tanh_cubic"]
CASTS = [
    "fp32",
    "e5m10",
    "bf16",
    "e4m3/ru",
    "e5m2/rtz",
    "bf16/ro",
    "e8m12/sat/rd",
    "fixed(16,8)",
    "binary8p3",
    "e5m10/rna",
]
SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4e38, -3.4e38]


def run(function: str, cast: str, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(a)
    cpu.run_rows("map", [a, b], [out], [parse_cast(cast)], rows=a.numel(), cols=1, function=function)
    return out


def arguments(seed: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = random.Random(seed)
    values = [generator.gauss(0, 1) * 2.0 ** generator.randint(-20, 6) for _ in range(count)]
    near_one = [1 + generator.gauss(0, 1) * 2.0**-20 for _ in range(10)]
    return torch.tensor(values + near_one + SPECIALS, dtype=dtype)


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_random_and_special_arguments_round_as_the_reference(function, cast):
    a = arguments(1, 40)
    want = torch.tensor([apply_function(function, x, 0.0, parse_cast(cast)) for x in a.tolist()])
    assert_bitwise_equal(run(function, cast, a), want, nan_is_nan=True, context=f"{function} {cast}")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_float64_arguments_and_results(function):
    a = arguments(2, 15, torch.float64)
    want = torch.tensor([apply_function(function, x, 0.0, parse_cast("fp64")) for x in a.tolist()], dtype=torch.float64)
    assert_bitwise_equal(run(function, "fp64", a), want, nan_is_nan=True, context=function)


@pytest.mark.parametrize("cast", ["fp32", "e5m10", "e5m10/ru", "bf16"])
def test_log_add(cast):
    generator = random.Random(3)
    pairs = [(generator.gauss(0, 4), generator.gauss(0, 4)) for _ in range(40)] + [
        (0.0, -100.0),
        (0.0, -3e38),
        (-0.6931472, -0.6931472),
    ]
    pairs += [(x, y) for x in (math.inf, -math.inf, 0.0, math.nan) for y in (math.inf, -math.inf, -0.0, math.nan)]
    a, b = torch.tensor(pairs).unbind(1)
    want = torch.tensor(
        [apply_function("log_add", x, y, parse_cast(cast)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    )
    assert_bitwise_equal(run("log_add", cast, a.contiguous(), b.contiguous()), want, nan_is_nan=True)


def mpfr(function: str, x: float) -> object:
    a = gmpy2.mpfr(x)
    match function:
        case "exp":
            return gmpy2.exp(a)
        case "log":
            return gmpy2.log(a)
        case "tanh":
            return gmpy2.tanh(a)
        case "erf":
            return gmpy2.erf(a / gmpy2.sqrt(2))
        case "sigmoid":
            return 1 / (1 + gmpy2.exp(-a))
        case _:
            return gmpy2.tanh(gmpy2.sqrt(2 / gmpy2.const_pi()) * (a + a**3 * 44715 / 1000000))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("function", ["exp", "log", "tanh", "erf", "sigmoid", "tanh_cubic"])
def test_every_16_bit_argument_in_float32(function, dtype):
    """MPFR's value at 200 bits, rounded to 24: exponents are far inside its range, so that this is one rounding."""
    a = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    a = a[a.isfinite() & (a.abs() < 85) & (a != 0)]
    if function == "log":
        a = a[a > 0]
    got = run(function, "fp32", a)
    with gmpy2.context(precision=200):
        high = [mpfr(function, x) for x in a.tolist()]
    with gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True):
        want = torch.tensor([float(gmpy2.mpfr(v)) for v in high])
    assert_bitwise_equal(got, want, context=function)


@pytest.mark.parametrize("cast", ["e5m10", "bf16", "e4m3/sr8", "binary8p3", "fixed(8,4)/rtz"])
@pytest.mark.parametrize("function", [*FUNCTIONS, "add", "div", "sqrt", "log_add", "pow"])
def test_every_isa_gives_the_same_bits(function, cast):
    a, b = arguments(5, 60), arguments(6, 60).flip(0).contiguous()
    chosen, results = cpu.isa(), []
    try:
        for isa in cpu.ISAS:
            try:
                cpu.set_isa(isa)
            except cpu.LibraryError:
                continue
            results.append(run(function, cast, a, b))
    finally:
        cpu.set_isa(chosen)
    for other in results[1:]:
        assert_bitwise_equal(other, results[0], context=f"{function} {cast}")


def test_powers_that_are_exact_are_rounded_as_such():
    a = torch.tensor([3.0, 1.5, 9.0, -3.0, 2.0**-10, 0.0, -0.0, 7.0])
    b = torch.tensor([2.0, 3.0, 0.5, 3.0, -2.0, -1.0, 3.0, 0.0])
    want = torch.tensor([9.0, 3.375, 3.0, -27.0, 2.0**20, math.inf, -0.0, 1.0])
    for cast in ("fp32", "fp32/ru", "fp32/rtz", "fp32/ro"):
        assert_bitwise_equal(run("pow", cast, a, b), want)
