"""Block floating point kernels, run on the host: the bits of the CPU backend for every sharing, mode, dtype and layout."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import run_rows_on_host

from gemmsim.backends import cpu
from gemmsim.backends.cuda.casts import block_float as cuda_block_float
from gemmsim.formats import parse_block_float

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
MODES = ["rne", "rna", "rtz", "ru", "rd", "ro", "rnd", "rnu", "sr8", "srb8", "src8"]
SHARINGS = ["bfp(8,16{})", "bfp(4,5,dim=0{})", "bfp(6,tensor{})", "bfp(8,index=1{})", "bfp(3,7{})"]


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-9, 9, shape, generator=g))
    flat = x.view(-1)
    flat[:6] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1e-44, -3e-310])
    flat[-40:] = 0
    flat[-3] = 2.0**-24 if dtype == F16 else 1e-40
    return x.to(dtype)


def compare(text: str, x: torch.Tensor, out_dtype: torch.dtype | None = None, **places: torch.Tensor) -> None:
    fmt = parse_block_float(text)
    want = torch.empty(x.shape, dtype=out_dtype or x.dtype)
    got = places.get("out", torch.full_like(want, 7.0))
    cpu.quantize_tensor(x, fmt, want, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_block_float, "launch", run_rows_on_host)
        cuda_block_float.quantize_tensor(x, fmt, got, 5)
    assert_bitwise_equal(got.contiguous(), want, context=f"{text} {x.dtype} {tuple(x.shape)} {x.stride()}")


@pytest.mark.parametrize("mode", MODES)
def test_every_rounding(mode):
    compare(f"bfp(8,16,asymmetric,inf)/{mode}" if mode == "rd" else f"bfp(8,16)/{mode}", numbers(9, 70, dtype=F32))


@pytest.mark.parametrize("text", SHARINGS)
def test_every_sharing_and_layout(text):
    text, x = text.format(""), numbers(6, 5, 40, dtype=F32)
    for view in (x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0), x.repeat(2, 1, 2)[::2, :, ::2]):
        compare(text, view, out=torch.empty(40, 6, 5).permute(1, 2, 0))
        compare(text, view)


@pytest.mark.parametrize("dtype", [F64, F16, BF16], ids=str)
def test_every_dtype(dtype):
    compare("bfp(8,16)", numbers(4, 50, dtype=dtype))
    compare("bfp(8,16)", numbers(4, 50, dtype=dtype), F32)


def test_long_groups_are_measured_by_several_blocks(monkeypatch):
    monkeypatch.setattr(cuda_block_float, "_LONG", 300)
    monkeypatch.setattr(cuda_block_float, "_SLICE", 256)
    compare("bfp(8,tensor)", numbers(7, 130, dtype=F32))
    compare("bfp(8,index=0)", numbers(3, 900, dtype=F32))
    compare("bfp(8,400)", numbers(3, 900, dtype=F32))


def test_in_place_many_dimensions_and_nothing():
    x = numbers(4, 40, dtype=F32)
    compare("bfp(8,16)", x, out=x)
    compare("bfp(8,2)", numbers(*[2] * 10, dtype=F32).reshape([2, 1] * 10).permute(*range(19, -1, -1)))
    compare("bfp(8,16)", torch.empty(0, 16))
