"""The block format kernels, run on the host: codes, scales and values of the CPU backend and of the exact reference."""

from __future__ import annotations

import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda_mx import (
    MX_NAMES,
    cpu_encode,
    hard_rows,
    host_decode,
    host_encode,
    host_quantize_blocks,
    on_host,
    packings,
)

import gemmsim as gs
from gemmsim.backends import cpu, cuda
from gemmsim.backends.cuda.casts import mx_cast
from gemmsim.backends.cuda.jit.sass_report import inspect_kernel
from gemmsim.formats import BLOCK_NAMES, parse_block
from gemmsim.mx import operators as mx_operators
from gemmsim.mx.arguments import code_shape
from gemmsim.reference import decode_block, encode_block, quantize_block

F32 = torch.float32


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "any"])
@pytest.mark.parametrize("name", MX_NAMES)
def test_codes_and_values_are_the_cpus(name, whole):
    """Thousands of hard blocks; the rows of ``any`` are cut out of wider ones."""
    fmt = parse_block(name)
    x = hard_rows(min(fmt.block_size, 32), 300, seed=len(name))
    if not whole:
        x = torch.cat([x, x], dim=1)[:, : x.shape[1]]
    second = float(torch.tensor(0.01)) if fmt.tensor_scale else 1.0
    codes, scales = host_encode(x, fmt, second=second)
    want_codes, want_scales = cpu_encode(x, fmt, second=second)
    assert_bitwise_equal(scales, want_scales, context=name)
    assert_bitwise_equal(codes, want_codes, context=name)
    for dtype in (F32, torch.bfloat16):
        want = torch.empty(x.shape, dtype=dtype)
        cpu.quantize_blocks(x, fmt, want, 1, second)
        got = host_quantize_blocks(x, fmt, torch.empty(x.shape, dtype=dtype), second=second)
        assert_bitwise_equal(got, want, context=f"{name} quantize {dtype}")
        cpu.decode_blocks(codes, scales, fmt, want, 1, "bytes", second)
        got = host_decode(codes, scales, fmt, torch.empty(x.shape, dtype=dtype), second=second)
        assert_bitwise_equal(got, want, context=f"{name} decode {dtype}")


@pytest.mark.parametrize("name", MX_NAMES)
def test_the_reference_agrees(name):
    fmt = parse_block(name)
    x = hard_rows(min(fmt.block_size, 32), 5, seed=2 + len(name))
    second = float(torch.tensor(0.3)) if fmt.tensor_scale else 1.0
    codes, scales = host_encode(x, fmt, second=torch.tensor(second))
    values = host_decode(codes, scales, fmt, torch.empty(x.shape), second=torch.tensor(second))
    both = host_quantize_blocks(x, fmt, torch.empty(x.shape), second=torch.tensor(second))
    for row in range(len(x)):
        block = x[row].tolist()
        want_codes, scale = encode_block(block, fmt, second)
        assert (codes[row].tolist(), scales[row].item()) == (want_codes, scale), block
        assert_bitwise_equal(values[row], torch.tensor(decode_block(want_codes, scale, fmt, second)), context=name)
        assert_bitwise_equal(both[row], torch.tensor(quantize_block(block, fmt, second)), context=name)


@pytest.mark.parametrize("name", [*BLOCK_NAMES, "mx(e5m2,e3m3)/b16", "mxint8/torchmx"])
def test_every_byte_under_every_scale(name):
    """All 256 bytes as codes, those not in use included, with all 256 scales; and packed."""
    fmt = parse_block(name)
    bytes_ = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    codes = bytes_.repeat(256, 1)
    scales = bytes_[:, None].repeat(1, 256 // fmt.block_size).contiguous()
    want, got = torch.empty(256, 256), torch.empty(256, 256)
    cpu.decode_blocks(codes, scales, fmt, want, 1, "bytes")
    assert_bitwise_equal(host_decode(codes, scales, fmt, got), want, context=name)
    for packing in packings(fmt)[1:]:
        size = 256 * 4 // 3 // 32 * 32 if packing == "dense" else 512
        packed = codes[:, : code_shape([1, size], 1, packing)[1]].contiguous()
        some = bytes_[:, None].repeat(1, size // fmt.block_size).contiguous()
        want, got = torch.empty(256, size), torch.empty(256, size)
        cpu.decode_blocks(packed, some, fmt, want, 1, packing)
        assert_bitwise_equal(host_decode(packed, some, fmt, got, packing=packing), want, context=packing)


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4", "mxint8/torchao-0.6.1", "nvfp4"])
def test_other_dtypes_round_once(name):
    fmt = parse_block(name)
    x = hard_rows(fmt.block_size, 100, seed=3).double()
    x = x * (1 + torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2.0**-40)
    x[0, :4] = torch.tensor([1.0, 1.25 + 2**-40, 1.25 - 2**-40, 1.0625 + 2**-45]).double()
    x[1, 0], x[2, 0], x[3, 0] = 1e300, math.inf, 1e-320
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        y = x.to(dtype)
        for got, want in zip(host_encode(y, fmt), cpu_encode(y, fmt), strict=True):
            assert_bitwise_equal(got, want, context=str(dtype))
        want = torch.empty_like(y)
        cpu.quantize_blocks(y, fmt, want, 1)
        assert_bitwise_equal(host_quantize_blocks(y, fmt, torch.empty_like(y)), want, context=str(dtype))


@pytest.mark.parametrize(
    "name", ["mxfp8_e4m3", "mxfp4/b7", "mxfp4/b6", "mxfp6_e2m3/b3", "mxfp6_e3m2/b16", "nvfp4/tensor", "mxint8/b40"]
)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_dimension_any_strides_short_blocks_and_packings(name, dim):
    fmt = parse_block(name)
    base = torch.randn(2, 37, 3, 50, generator=torch.Generator().manual_seed(1))
    second = float(torch.tensor(0.1)) if fmt.tensor_scale else 1.0
    for x in (base[:, ::2, 1].transpose(0, 2)[3:], base[1, :, :, :33], base[:, 3:4, 2, 7:8]):
        want = torch.empty(x.shape)
        cpu.quantize_blocks(x, fmt, want, dim, second)
        out = torch.full((*x.shape, 2), 7.0)
        host_quantize_blocks(x, fmt, out[..., 0], dim, second)
        assert_bitwise_equal(out[..., 0].contiguous(), want)
        assert bool((out[..., 1] == 7.0).all()), "wrote beside the result"
        for packing in packings(fmt):
            codes, scales = host_encode(x, fmt, dim, packing, second)
            for got, wanted in zip((codes, scales), cpu_encode(x, fmt, dim, packing, second), strict=True):
                assert_bitwise_equal(got, wanted, context=packing)
            wide = torch.stack([codes, codes], dim=-1)[..., 1]  # strided bytes
            out = torch.empty(x.shape[::-1]).permute(2, 1, 0)
            host_decode(wide, scales, fmt, out, dim, packing, second)
            assert_bitwise_equal(out.contiguous(), want, context=packing)


def test_addresses_that_are_not_aligned_and_results_in_place():
    fmt = parse_block("mxfp8_e4m3")
    for dtype in (F32, torch.bfloat16):
        room = torch.randn(70 * 32 + 8, generator=torch.Generator().manual_seed(4)).to(dtype)
        for shift in (0, 1, 4, 8):
            x = room[shift : shift + 70 * 32].clone() if shift == 0 else room[shift : shift + 70 * 32]
            want = torch.empty_like(x)
            cpu.quantize_blocks(x, fmt, want, 0)
            mine = room.clone()[shift : shift + 70 * 32]
            assert_bitwise_equal(host_quantize_blocks(mine, fmt, mine), want, context=f"{dtype} from {shift}")
            codes = torch.full((70 * 32 + 8,), 7, dtype=torch.uint8)
            mx_codes, _ = cpu_encode(x, fmt)
            got, _ = host_encode(x, fmt)
            assert_bitwise_equal(got, mx_codes)
            assert codes.unique().tolist() == [7]


@pytest.mark.parametrize("blocks", [1, 3, 64, 65, 200])
def test_counts_that_fill_no_thread_block(blocks):
    """Nothing is written past the end, and every block is done."""
    fmt, n = parse_block("mxfp4"), blocks * 32
    x = torch.randn(n, generator=torch.Generator().manual_seed(5))
    codes = torch.full((n // 2 + 64,), 0xAA, dtype=torch.uint8)
    scales = torch.full((blocks + 64,), 0xAA, dtype=torch.uint8)
    with on_host():
        mx_cast.encode_blocks(x, fmt, codes[: n // 2], scales[:blocks], 0, "lo_first")
    want_codes, want_scales = cpu_encode(x, fmt, packing="lo_first")
    assert_bitwise_equal(codes[: n // 2], want_codes)
    assert_bitwise_equal(scales[:blocks], want_scales)
    assert codes[n // 2 :].unique().tolist() == [0xAA] == scales[blocks:].unique().tolist()


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4/b8/rna", "nvfp4/tensor"])
def test_the_operators_take_the_backend_of_their_device(name, monkeypatch):
    """What runs for CUDA tensors, with the backend asked for by hand: the public functions give the CPU's results."""
    x = torch.randn(6, 64, generator=torch.Generator().manual_seed(6))
    want = gs.mx.encode(x, name)
    values, both = gs.mx.decode(want, name), gs.mx.quantize(x, name, dim=0)
    monkeypatch.setattr(mx_operators, "backend_of", lambda x: cuda)
    with on_host():
        got = gs.mx.encode(x, name)
        assert_bitwise_equal(got.codes, want.codes)
        assert_bitwise_equal(got.scales, want.scales)
        assert_bitwise_equal(gs.mx.decode(got, name), values)
        assert_bitwise_equal(gs.mx.quantize(x, name, dim=0), both)


def test_the_launch_covers_every_element_once(monkeypatch):
    """Counts beyond 2^31 and 2^32: of thread blocks, and in the record."""
    seen = []
    monkeypatch.setattr(mx_cast, "launch", lambda source, device, blocks, args: seen.append((source, blocks[0], args)))
    fmt = parse_block("mxfp8_e4m3")
    huge = torch.empty(1, dtype=torch.bfloat16).expand(2**20, 2**13)
    mx_cast.quantize_blocks(huge, fmt, huge, 1)  # no memory is touched: nothing runs
    source, blocks, args = seen.pop()
    assert ", any" in source.name and args.count == 2**28 and blocks == 2**20 and args.k == 2**13
    meta = torch.empty(2**20 + 1, 2**13, dtype=torch.bfloat16, device="meta")
    mx_cast.quantize_blocks(meta, fmt, meta, 1)
    source, blocks, args = seen.pop()
    assert (
        ", whole" in source.name
        and args.count == (2**20 + 1) * 2**13
        and (blocks - 1) * 4096 < args.count <= blocks * 4096
    )


def test_too_many_dimensions_are_refused():
    x = torch.empty([2, 1] * 9).expand([2] * 18)
    with pytest.raises(ValueError, match="at most 17"):
        mx_cast.quantize_blocks(
            x, parse_block("mxfp4"), torch.empty([3] * 18).as_strided([2] * 18, [3**i for i in range(18)]), 0
        )


@pytest.mark.cuda
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_kernels_compile_without_spills(arch, compiled_before):
    sources = list(mx_cast.sources())[::6]
    if compiled_before(*((source, arch) for source in sources)):
        return
    for source in sources:
        facts = inspect_kernel(cuda.compile_kernel(source, arch))
        assert (facts.spills, facts.stack) == (0, 0), source
