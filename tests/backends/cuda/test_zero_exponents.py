"""Steps of matrix instructions on the CUDA backend, run on the host, where zeros and the smallest numbers decide: the bits of
``gemmsim.hardware.mma``."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_gemm import host_gemm

import gemmsim as gs
from gemmsim import acc, hardware
from gemmsim.arithmetic import GemmSpec

CHOICES = [
    acc.hw("hopper", "wgmma", "bf16"),
    acc.hw("ampere", "mma", "fp16", out="fp16"),
    acc.hw("hopper", "mma", "e5m2", "e4m3"),
    acc.hw("cdna1", "mfma", "bf16"),
    acc.hw("cdna3", "mfma", "bf16"),
    acc.hw("cdna3", "mfma", "e5m2fnuz"),
]
DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}
SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32}
UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}


def lines(count: int, k: int, seed: int) -> torch.Tensor:
    """Numbers of a few kinds: zeros among huge ones, the smallest, decreasing ones that the register dominates."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, k, generator=g, dtype=torch.float64)
    zero = torch.rand(count, k, generator=g) < 0.7
    exponents = torch.randint(-70, 60, (count, k), generator=g).double()
    kinds = [
        torch.where(zero, 0.0, x * torch.exp2(exponents)),
        x * 2.0**-74,
        x * torch.exp2(-torch.arange(k) / 4.0),
        torch.where(zero, 0.0, x * 2.0**-12),
        x.abs(),
    ]
    return torch.stack([kinds[i % len(kinds)][i] for i in range(count)])


def bits(x: torch.Tensor, kind: hardware.Operand) -> torch.Tensor:
    return x.to(DTYPES[kind.name]).view(SIGNED[kind.width])


@pytest.mark.kept(by="nothing")
@pytest.mark.parametrize("one", CHOICES, ids=str)
def test_zeros_and_the_smallest_numbers(one):
    row, k = one.instruction, 3 * one.instruction.k
    a_kind, b_kind, _, d_kind = row.operands
    a = gs.quantize(lines(15, k, 1).float(), str(one.operand_casts[0]))
    b = gs.quantize(lines(10, k, 2).float(), str(one.operand_casts[1])).T.contiguous()
    got = torch.empty(15, 10)
    host_gemm(a, b, GemmSpec.of(one), got)
    c = torch.zeros(15, 10, dtype=SIGNED[d_kind.width]).view(UNSIGNED[d_kind.width])
    left, right = bits(a, a_kind).view(UNSIGNED[a_kind.width]), bits(b, b_kind).view(UNSIGNED[b_kind.width])
    codes = hardware.mma(row.arch, row.name, left, right, c)
    want = codes.view(torch.float16).float() if d_kind.width == 16 else codes.view(torch.float32)
    assert_bitwise_equal(got, torch.where(want.isnan(), float("nan"), want))
