"""Finite floats and scaled blocks on the CPU against the reference in Fractions."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_bitwise_equal
from support_cpu import isas

import gemmsim as gs
from gemmsim import reference
from gemmsim.backends import cpu
from gemmsim.formats import FiniteFloatFormat, FormatError, ScaledBlockFormat, TensorFormat, parse
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
SPECIALS = [2.0**-149, -(2.0**-140), math.inf, -math.inf, math.nan, 0.0, -0.0, 3.4e38, -1e38, 480.0, 496.0, 495.9, 2.0**-6]


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
