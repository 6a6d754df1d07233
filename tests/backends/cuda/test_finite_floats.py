"""Finite floats and scaled blocks, run on the host: the bits of the CPU backend for every kind, mode, dtype and layout."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import compile_on_host, run_rows_on_host

from gemmsim.backends import cpu
from gemmsim.backends.cuda.casts import block_float as cuda_block_float
from gemmsim.formats import parse_tensor_format

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
NAMES = [
    "FP[1|4|3,7](_N)", "FP[1|5|10,15](FN)", "FP[0|4|4,7](FN)", "FP[1|4|0,7](_N)", "FP[1|3|0,-20](_N)",
    "FP[1|8|7,127](FN)", "FP[1|8|0,127](_N)", "FP[1|8|23,127](FN)", "FP[1|7|22,3](_N)",
    "MXFP8[E4M3]{5}", "MXFP8[E5M2]{7,0}", "MXFP4[E2M1]{4,1}", "MXFP5[E4M0]{3}", "MXFP12[E8M3]{4}",
    "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}", "SBFP<XP[8,0](_SN)><FP[0|5|10,9](_N)>{3,0}",
    "SBFP<XP[24,0](CSN)><FP[1|8|0,127](_U)>{5,1}",
]  # fmt: skip
MODES = ["rna", "rnd", "rnu", "rtz", "ru", "rd", "ro", "sr8", "srb8", "src20"]
SPECIALS = [torch.nan, torch.inf, -torch.inf, -0.0, 1e-44, -3e-310, 3.4e38, 480.0, 496.0, 2.0**-6, 2.0**-6 - 2.0**-30]
KINDS = ["FP[1|4|3,7](_N)", "MXFP8[E4M3]{5}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}"]


def numbers(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=g, dtype=torch.float64) * torch.exp2(torch.randint(-14, 12, shape, generator=g))
    flat = x.view(-1)
    flat[: len(SPECIALS)] = torch.tensor(SPECIALS, dtype=torch.float64)
    flat[20:60] = torch.arange(-20, 20) / 32
    flat[-40:] = 0
    flat[-3] = 2.0**-24 if dtype == F16 else 1e-40
    return x.to(dtype)


def launch_all(calls: list[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
    """Each call's result against the CPU's; all kernels compiled together."""
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_block_float, "launch", lambda source, *rest: found.append(source))
        for name, x, out in calls:
            cuda_block_float.quantize_tensor(x, parse_tensor_format(name), out, 5)
        compile_on_host(found)
        patch.setattr(cuda_block_float, "launch", run_rows_on_host)
        for name, x, out in calls:
            fmt = parse_tensor_format(name)
            want = torch.empty(x.shape, dtype=out.dtype)
            cpu.quantize_tensor(x, fmt, want, 5)
            cuda_block_float.quantize_tensor(x, fmt, out, 5)
            assert_bitwise_equal(out.contiguous(), want, context=f"{name} {x.dtype} {tuple(x.shape)} {x.stride()}")


def test_every_format():
    launch_all([(name, x, torch.full_like(x, 7.0)) for name in NAMES for x in (numbers(9, 4, 30),)])


@pytest.mark.parametrize("name", KINDS)
def test_every_rounding(name):
    x = numbers(9, 70)
    launch_all([(f"{name}/{mode}", x, torch.empty_like(x)) for mode in MODES])


def test_every_dtype_and_layout():
    calls = []
    for name in KINDS:
        for dtype in (F64, F16, BF16):
            x = numbers(5, 50, dtype=dtype)
            calls += [(name, x, torch.empty_like(x)), (name, x, torch.empty_like(x, dtype=F32))]
        x = numbers(6, 5, 40)
        for view in (x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0), x.repeat(2, 1, 2)[::2, :, ::2]):
            calls += [(name, view, torch.empty(40, 6, 5).permute(1, 2, 0)), (name, view, torch.empty_like(view))]
    launch_all(calls)


def test_long_blocks_long_rows_and_nothing(monkeypatch):
    monkeypatch.setattr(cuda_block_float, "_LONG", 300)
    monkeypatch.setattr(cuda_block_float, "_SLICE", 256)
    x = numbers(3, 2500)
    long = ["FP[1|4|3,7](_N)", "MXFP8[E4M3]{400}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{1000}"]
    launch_all([(name, x, torch.empty_like(x)) for name in long])
    launch_all([(name, torch.empty(0, 16), torch.empty(0, 16)) for name in KINDS])
    cpu_result = torch.empty_like(x)
    cpu.quantize_tensor(x, parse_tensor_format(KINDS[1]), cpu_result)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_block_float, "launch", run_rows_on_host)
        cuda_block_float.quantize_tensor(x, parse_tensor_format(KINDS[1]), x)
    assert_bitwise_equal(x, cpu_result)
