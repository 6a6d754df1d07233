"""Products of block formats on a Hopper, from operands that are decoded once and in every tile: the same numbers, and with the
instruction's published model the same bits. Kernels run on the host, whole."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from support import assert_bitwise_equal
from support.collective import fake_gpu, fake_hopper  # noqa: F401
from support.cuda import run_on_host
from support.cuda_mx import decode_as_tiles
from support.matrix import launching
from support.matrix import on_host as matrices_on_host

import gemmsim as gs
from gemmsim.arithmetic import Accumulator
from gemmsim.backends import cuda
from gemmsim.backends.cuda.casts import mx_cast
from gemmsim.backends.cuda.tensor_cores import block_scaled_mma, wgmma_dequantized
from gemmsim.backends.cuda.tensor_cores.wgmma_dequantized import decoded_lines, decodes_once
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import parse_block

HOPPER = Accumulator.parse("hw(hopper, wgmma, bf16)")
F32, BF16 = torch.float32, torch.bfloat16


def _launch(source, device, blocks, args):
    run_on_host(source, blocks, args, fibers=", whole" in source.name)


@contextmanager
def on_host():
    """Kernels of both ways run on the host, the instruction's as its model."""
    with pytest.MonkeyPatch.context() as patch, matrices_on_host(HOPPER, early=False):
        patch.setattr(block_scaled_mma, "launch", launching(HOPPER))
        for module in (mx_cast, wgmma_dequantized):
            patch.setattr(module, "launch", _launch)
        yield


def coded(x: torch.Tensor, name: str, packing: str, scale: float | None = None) -> Coded:
    """``x`` (lines, terms) with lines that start at multiples of 16 bytes, as the kernels read them."""
    fmt = parse_block(name)
    second = {"tensor_scale": torch.tensor(scale)} if fmt.tensor_scale else {}
    found = gs.mx.encode(x, fmt, packing=packing, **second)
    pitch = -(-found.codes.shape[1] // 16) * 16
    codes = torch.full((len(x), pitch), 0x5A, dtype=torch.uint8)[:, : found.codes.shape[1]]
    codes.copy_(found.codes)
    one = Coded(codes, found.scales, fmt, -1, x.shape[1], packing)
    return replace(one, tensor_scale=second["tensor_scale"]) if second else one


def in_tiles(a: Coded, b: Coded, out: torch.Tensor) -> torch.Tensor:
    source = block_scaled_mma.tensor_source("WARP_GROUP", a.format, b.format, a.packing, b.packing, out.dtype)
    with on_host():
        block_scaled_mma.run_tensor(source, a, b, out)
    return out


def once(a: Coded, b: Coded, out: torch.Tensor) -> torch.Tensor:
    with on_host():
        wgmma_dequantized.gemm_decoded(a, b, out)
    return out


def values_in_tiles(x: Coded) -> torch.Tensor:
    """Element times scale as a tile decodes it, all lines as one."""
    out = torch.full((len(x.codes), x.size), 7.0, dtype=BF16)
    decode_as_tiles(x.codes, x.scales, x.format, x.packing, out.numel(), out)
    return out


@pytest.mark.cuda
@pytest.mark.parametrize(
    "name, packing",
    [("mxfp8_e4m3", "bytes"), ("mxfp8_e5m2", "bytes"), ("mxfp6_e3m2", "bytes"), ("mxint8", "bytes"), ("mxfp4", "lo_first"),
     ("nvfp4", "lo_first"), ("mx(e5m2,e3m3)/b16", "bytes")],
)  # fmt: skip
def test_numbers_are_those_of_tiles(name, packing):
    """Every byte under every scale: infinities, NaN, codes not in use, products that bfloat16 rounds or has not."""
    fmt = parse_block(name)
    block, per_byte = fmt.block_size, 2 if packing == "lo_first" else 1
    bytes_ = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    codes = torch.zeros(256 * 256 // 64, 64 * block // per_byte // 4, dtype=torch.uint8)
    scales = torch.zeros(len(codes), codes.shape[1] * per_byte // block, dtype=torch.uint8)
    flat = codes.view(-1, block // per_byte)  # a block for every scale and four bytes
    flat[:] = bytes_.view(-1, 4)[torch.arange(len(flat)) % 64].repeat(1, block // per_byte // 4)
    scales.view(-1)[:] = bytes_.repeat_interleave(scales.numel() // 256)
    x = Coded(codes, scales, fmt, -1, codes.shape[1] * per_byte, packing)
    with on_host():
        got = decoded_lines(x)
    tiles, nan = values_in_tiles(x), got.isnan()
    assert torch.equal(nan, tiles.isnan())  # no product looks at a NaN's payload
    zero = torch.zeros((), dtype=BF16)
    assert_bitwise_equal(torch.where(nan, zero, got), torch.where(nan, zero, tiles), context=name)
    assert nan.any() and not nan.all()


@pytest.mark.cuda
@pytest.mark.parametrize(
    "names, packings, k",
    [
        ("mxfp8_e4m3 mxfp8_e4m3", "bytes bytes", 320),
        ("mxfp8_e5m2 mxfp4", "bytes lo_first", 100),
        ("nvfp4/tensor nvfp4", "lo_first lo_first", 77),
        ("nvfp4/tensor nvfp4/tensor", "lo_first lo_first", 64),
        ("mxint8 mxfp6_e3m2", "bytes bytes", 13),
        ("mx(e5m2,e3m3)/b16 mxfp8_e4m3", "bytes bytes", 96),
    ],
)
def test_products_have_the_bits_of_those_decoded_in_tiles(names, packings, k):
    """Cancelling sums, scales far apart, subnormal and overflowing values, NaN and infinities, ragged tiles and lines."""
    g = torch.Generator().manual_seed(k)
    spread = torch.exp2(torch.randint(-9, 9, (1, k), generator=g).float())
    a, b = torch.randn(131, k, generator=g) * spread, torch.randn(7, k, generator=g) / spread
    a[2], b[3] = a[2] * 2.0**-120, b[3] * 2.0**-60
    a[3], b[4] = a[3] * 2.0**100, b[4] * 2.0**60
    a[4, k // 2], b[5, k - 1], a[5, 0] = math.nan, math.inf, -0.0
    a[6], b[6] = 0, 0
    left, right = (
        coded(x, name, packing, scale)
        for x, name, packing, scale in zip((a, b), names.split(), packings.split(), (0.3, 1.7), strict=True)
    )
    for dtype in (F32, BF16) if k != 100 else (torch.float16, torch.float64):
        room = torch.full((131, 12), 7.0, dtype=dtype)
        want = in_tiles(left, right.transposed, torch.full((131, 7), 7.0, dtype=dtype))
        got = once(left, right.transposed, room[:, :7])
        assert_bitwise_equal(got.contiguous(), want, context=f"{names} {dtype}")
        assert (room[:, 7:] == 7.0).all(), "wrote beside the result"
        assert want[0].isfinite().any() and want.isnan().any()


@pytest.mark.parametrize(
    "m, n, k, once",
    [
        (8192, 8192, 8192, True),
        (4096, 4096, 4096, True),
        (2048, 2048, 2048, True),
        (1024, 1024, 1024, False),  # launches cost more
        (128, 8192, 8192, True),
        (128, 128, 128, False),
        (16, 10_000, 2048, False),  # each line of B is read once
        (8192, 8192, 0, False),
    ],
)
def test_large_products_are_decoded_once(m, n, k, once):
    assert decodes_once(torch.empty(1).expand(m, n), k) is once


def test_the_call_takes_the_cheaper_way(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(block_scaled_mma, "device_arch", lambda index: "sm_90a")
    g = torch.Generator().manual_seed(2)
    a, b = (coded(torch.randn(9, 64, generator=g), "mxfp8_e4m3", "bytes") for _ in range(2))
    results = []
    for cheaper in (False, True):
        monkeypatch.setattr(block_scaled_mma, "decodes_once", lambda out, k, cheaper=cheaper: cheaper)
        results.append(torch.empty(9, 9))
        with on_host():
            run = cuda.gemm_tensor_cores(a, b.transposed, results[-1])
        assert ("decoded to bfloat16 once, by mx_cast" in str(run)) is cheaper
        assert ("gemm_instruction<" if cheaper else "gemm_tensor<") in str(run)
    assert_bitwise_equal(*results)


def test_large_ones_take_cutlass_mainloop(fake_hopper, monkeypatch):  # noqa: F811
    """The record that CUTLASS' kernel is given, and its sums as the chain makes them."""
    monkeypatch.setattr(wgmma_dequantized, "LARGE", 500)
    g = torch.Generator().manual_seed(3)
    for name, scale in (("mxfp8_e4m3", None), ("nvfp4/tensor", 0.4)):
        packing = "bytes" if scale is None else "lo_first"
        a, b = (coded(torch.randn(n, 77, generator=g), name, packing, scale) for n in (9, 6))
        want = in_tiles(a, b.transposed, torch.empty(9, 6, dtype=BF16))
        got = torch.empty(9, 6, dtype=BF16)
        with monkeypatch.context() as patch:
            for module in (mx_cast, wgmma_dequantized):
                patch.setattr(module, "launch", _launch)
            kernels = wgmma_dequantized.gemm_decoded(a, b.transposed, got)
        assert [kernel.family for kernel in kernels] == ["gemm_collective", "gemm_tensor"][: 1 + (scale is not None)]
        assert len(fake_hopper.launches) == 1
        fake_hopper.launches.clear()
        assert_bitwise_equal(got, want, context=name)
