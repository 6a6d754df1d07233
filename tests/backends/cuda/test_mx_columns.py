"""Blocks across rows (cutlass_kernels/mx/columns.h), run on the host: the CPU backend's codes and scales, from the kernel that
is meant, and nothing written beside them."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda import run_on_host
from support.cuda_mx import MX_NAMES, cpu_encode, hard_rows, packings

from gemmsim.backends.cuda.casts import mx_cast
from gemmsim.formats import BlockFormat, parse_block

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
#: Formats whose blocks of bfloat16 are rounded in pairs: each element format, each rule that is plain.
PAIRED = ["mxfp8_e4m3", "mxfp8_e5m2/ceil", "mxfp6_e3m2/even", "mxfp6_e2m3/rceil", "mxfp4", "mxfp4/ceil", "mx(e3m4)/b8"]


@pytest.fixture
def layouts(monkeypatch):
    """Kernels run on the host; their layouts, in the order of launches."""
    seen: list[str] = []

    def launch(source, device, blocks, args):
        seen.append(source.name.rpartition(", ")[2])
        run_on_host(source, blocks, args, fibers=seen[-1] == "whole")

    monkeypatch.setattr(mx_cast, "launch", launch)
    return seen


def encode(
    x: torch.Tensor, fmt: BlockFormat, dim: int, packing: str = "bytes", second: float = 1.0, shift: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales in the middle of larger tensors, ``shift`` bytes from an aligned address."""
    want = cpu_encode(x, fmt, dim, packing, second)
    got = []
    for one in want:
        pitch = (one.shape[-1] + 16) // 8 * 8
        room = torch.full((*one.shape[:-1], pitch), 0xAA, dtype=torch.uint8)
        got.append(room[..., shift : shift + one.shape[-1]])
    mx_cast.encode_blocks(x, fmt, got[0], got[1], dim, packing, second)
    for mine, wanted in zip(got, want, strict=True):
        assert_bitwise_equal(mine.contiguous(), wanted, context=f"{fmt} {x.dtype} {packing} {tuple(x.shape)}")
        room = mine._base
        inside = torch.zeros(room.shape, dtype=torch.bool)
        inside[..., shift : shift + mine.shape[-1]] = True
        assert (room[~inside] == 0xAA).all(), "wrote beside the result"
    return got[0], got[1]


@pytest.mark.parametrize("index, name", list(enumerate(MX_NAMES)))
def test_codes_are_the_cpus(index, name, layouts):
    """Thousands of hard blocks with NaN, infinities, subnormals and zeros, side by side; every packing."""
    fmt = parse_block(name)
    x = hard_rows(min(fmt.block_size, 32), 100, seed=len(name)).t().contiguous()
    x = x[:, : x.shape[1] // 4 * 4].contiguous()
    second = float(torch.tensor(0.01)) if fmt.tensor_scale else 1.0
    for dtype in (BF16, (F32, F16)[index % 2]):
        for packing in packings(fmt):
            encode(x.to(dtype), fmt, 0, packing, second)
            assert layouts.pop() == ("any" if packing == "dense" else "columns")


@pytest.mark.parametrize("name", PAIRED)
def test_every_bfloat16_under_scales_of_every_kind(name, layouts):
    """All magnitudes up to the block's largest, which stands in the first row: the smallest and largest scales, those
    whose factors are subnormal, and numbers that products take below the smallest normal."""
    fmt = parse_block(name)
    numbers = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(BF16)
    for exponent in (-133, -126, -120, -9, 0, 7, 100, 119, 120, 127):
        most = torch.tensor(math.ldexp(1.75, exponent) if exponent > -133 else 2.0**-133).to(BF16)
        fitting = numbers[numbers.abs() <= most]
        rows = fmt.block_size - 1
        width = (-(-fitting.numel() // rows) + 3) // 4 * 4
        body = torch.zeros(rows * width, dtype=BF16)
        body[: fitting.numel()] = fitting
        encode(torch.cat([most.repeat(1, width), body.view(rows, width)]), fmt, 0)
        assert layouts.pop() == "columns"


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4", "nvfp4", "mxint8/torchmx", "mxfp4/b6"])
@pytest.mark.parametrize("k", [1, 31, 32, 33, 70])
def test_columns_whose_last_block_is_short(name, k, layouts):
    fmt = parse_block(name)
    x = torch.randn(k, 12, generator=torch.Generator().manual_seed(k)).to(BF16)
    x[0, 3], x[-1, 5], x[k // 2, 7] = math.nan, math.inf, 1e-39
    for packing in packings(fmt):
        encode(x, fmt, 0, packing)
        assert layouts.pop() == "columns"


def test_what_does_not_lie_in_aligned_words_takes_the_other_kernel(layouts):
    """Odd numbers of columns, addresses and pitches that are not aligned, columns that lie apart, no neighbours at all."""
    fmt = parse_block("mxfp8_e4m3")
    base = torch.randn(70, 64, generator=torch.Generator().manual_seed(1)).to(BF16)
    for x, layout in (
        (base, "columns"),
        (base[:, 8:40], "columns"),  # a pitch of its own
        (base[3:, 4:12], "columns"),
        (base[::2], "columns"),
        (base[:1].expand(40, 64), "columns"),
        (base[:, :63], "any"),
        (base[:, :62], "any"),
        (base[:, 1:61], "any"),
        (base[:, 2:62], "any"),
        (base[:, ::2], "any"),
        (base[:, :7], "any"),
        (base.reshape(-1)[: 70 * 61].view(70, 61), "any"),
        (base.reshape(-1)[: 70 * 62].view(70, 62)[:, :60], "any"),
        (base.double(), "any"),
        (base[:, :62].float(), "columns"),  # two columns of float32 are a word
        (base[:, :63].float(), "any"),
    ):
        encode(x, fmt, 0)
        assert layouts.pop() == layout, (x.shape, x.stride())
    for shift, layout in ((4, "columns"), (2, "any")):
        encode(base, fmt, 0, shift=shift)
        assert layouts.pop() == layout, shift
    encode(base.t(), fmt, 1)  # columns of a transposed matrix, whose codes lie along the blocks
    assert layouts.pop() == "any"


def test_more_dimensions_and_blocks_in_the_middle(layouts):
    fmt = parse_block("mxfp4")
    x = torch.randn(3, 2, 45, 8, generator=torch.Generator().manual_seed(2)).to(BF16)
    for view, dim in ((x, 2), (x, 0), (x[:, 1], 1), (x.transpose(0, 2), 0), (x[1:2, :, :, 4:], 2)):
        for packing in packings(fmt):
            encode(view, fmt, dim, packing)
            assert layouts.pop() == "columns"


def test_longer_blocks_take_the_other_kernel(layouts):
    x = torch.randn(80, 8, generator=torch.Generator().manual_seed(3))
    encode(x, parse_block("mxint8/b40"), 0)
    assert layouts.pop() == "any"
    encode(x, parse_block("mxfp4/b7"), 0, "lo_first")  # blocks that share a byte
    assert layouts.pop() == "any"
    encode(x, parse_block("mxfp4/b7"), 0)
    assert layouts.pop() == "columns"
