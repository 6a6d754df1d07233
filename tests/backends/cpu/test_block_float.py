"""Block floating point on the CPU against the reference in Fractions."""

from __future__ import annotations

import math
import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.formats import BlockFloatFormat, Sharing, parse
from gemmsim.reference import quantize_block_float

NAMES = [
    "bfp(8,16)",
    "bfp(4,7)",
    "bfp(8,tensor)",
    "bfp(5,index=1)",
    "bfp(5,index=-1,asymmetric)",
    "bfp(8,3,dim=0)",
    "bfp(1,4)",
    "bfp(2,4,inf)",
    "bfp(24,5)",
    "bfp(32,6,dim=1)",
]
MODES = ["rne", "rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "srb8", "src20"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SPECIALS = [2.0**-149, -(2.0**-140), math.inf, -math.inf, math.nan, 0.0, -0.0, 3.4e38, 1e38, 1.9, 1.75, 0.125, -0.125]


def data(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    x = torch.randn(shape, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-9, 9, shape, generator=g))
    flat = x.reshape(-1)
    for i in range(0, flat.numel(), 5):
        kind = rng.random()
        if kind < 0.4:
            flat[i] = rng.choice(SPECIALS)
        elif kind < 0.6:
            flat[i] = rng.randint(-40, 40) / 16
        elif kind < 0.7 and dtype == torch.float64:
            flat[i] = rng.choice([1e300, 5e-324, -1e-320, 1.7e308])
    return x.to(dtype)


def expected(x: torch.Tensor, fmt: BlockFloatFormat, seed: int) -> torch.Tensor:
    found = quantize_block_float(x.double().reshape(-1).tolist(), x.shape, fmt, seed)
    return torch.tensor(found, dtype=torch.float64).to(x.dtype).view(x.shape)


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


@pytest.mark.parametrize(
    "name", ["bfp(8,64)", "bfp(8,5000)", "bfp(8,tensor)/sr12", "bfp(6,index=1)", "bfp(8,16,dim=0)/sr8"]
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


def test_blocks_by_hand():
    x = torch.tensor([1.9, 1.0, 0.125, -0.125, 0.375, -(2.0**-20), 0.0, -0.0])
    assert gs.quantize(x, "bfp(4,4)").tolist() == [1.75, 1.0, 0.0, 0.0, 0.375, 0.0, 0.0, 0.0]
    assert gs.quantize(x, "bfp(8,tensor)/ru")[5].item() == 0.0
    assert gs.quantize(-x, "bfp(8,tensor)/ru")[5].item() == 2.0**-6
    lowest = torch.tensor([1.0, -1.99])
    assert gs.quantize(lowest, "bfp(4,2,asymmetric)").tolist() == [1.0, -2.0]
    assert gs.quantize(torch.tensor([0.0, math.inf]), "bfp(8,2)").tolist() == [0.0, 2.0**128 - 2.0**121]


def test_empty_and_scalar_tensors():
    assert gs.quantize(torch.empty(0, 3), "bfp(8,16)").shape == (0, 3)
    assert gs.quantize(torch.tensor(1.9), "bfp(4,tensor)").item() == 1.75
    with pytest.raises(gs.ShapeError, match="one dimension or more"):
        gs.quantize(torch.tensor(1.9), "bfp(4,16)")
    with pytest.raises(gs.ShapeError, match="-2 to 1"):
        gs.quantize(torch.ones(2, 3), "bfp(4,16,dim=2)")
    with pytest.raises(gs.FormatError, match="no overflow policy"):
        gs.quantize(torch.ones(2), "bfp(4,16)", overflow="sat")


@pytest.mark.parametrize("name", ["bfp(8,4)", "bfp(8,4,dim=0)", "bfp(8,tensor)", "bfp(8,index=0)", "bfp(8,3)/sr8"])
def test_vmap_is_a_loop(name):
    x = torch.randn(5, 6, 7, generator=torch.Generator().manual_seed(2))
    seed = 3 if name.endswith("sr8") else None
    want = torch.stack([gs.quantize(x[:, i], name, seed=seed) for i in range(6)])
    got = torch.vmap(lambda t: torch.ops.gemmsim.quantize(t, name, seed), in_dims=1)(x)
    assert_bitwise_equal(got, want)


def test_as_an_operator():
    x = torch.randn(4, 32)
    torch.library.opcheck(torch.ops.gemmsim.quantize.default, (x, "bfp(8,16)"))
    compiled = torch.compile(lambda t: gs.quantize(t, "bfp(6,8)") + 1, fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(x), gs.quantize(x, "bfp(6,8)") + 1)
    out = torch.empty(4, 32, dtype=torch.float64)
    assert gs.quantize(x, "bfp(6,8)", rounding="rtz", out=out) is out
    assert_bitwise_equal(out.float(), gs.quantize(x, BlockFloatFormat(6, 8), rounding="rtz"))
    assert gs.last_backend().spec.startswith("bfp(6,8)")
    assert BlockFloatFormat(6, sharing=Sharing.TENSOR).dim == 0
