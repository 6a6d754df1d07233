"""Products of block formats on tensor cores: what can be seen without them. The decoder runs on the host; kernels compile, to
the instructions that are meant; no product is computed here."""

from __future__ import annotations

import ctypes
import math
import random
import re
from ctypes import c_int64, c_void_p
from fractions import Fraction

import pytest
import torch
from support.cuda import run_on_host
from support.cuda_mx import decode_as_tiles

import gemmsim as gs
from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.backends import cuda
from gemmsim.backends.cuda import KernelSource
from gemmsim.backends.cuda.casts.mx_format import mx_literal
from gemmsim.backends.cuda.jit import sass_report
from gemmsim.backends.cuda.tensor_cores import block_scaled_mma
from gemmsim.backends.cuda.tensor_cores.block_scaled_mma import refuses, route_of, tensor_args, tensor_source
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import FP32, Cast, parse_block
from gemmsim.reference import round_value


@pytest.mark.parametrize("name, packing", [("mxfp8_e4m3", "bytes"), ("mxfp6_e3m2", "bytes"), ("mxfp4", "lo_first"), ("nvfp4", "lo_first"), ("mxint8/b64", "bytes")])  # fmt: skip
def test_lines_are_decoded_exactly(name, packing):
    """The values of decode, in bfloat16; zeros beyond the line's end."""
    fmt = parse_block(name)
    for k in (128, 117):
        x = torch.randn(k, generator=torch.Generator().manual_seed(1))
        x[40] = float("nan")
        encoded = gs.mx.encode(x, fmt, packing=packing)
        codes = torch.cat([encoded.codes, torch.zeros(16, dtype=torch.uint8)])[: encoded.codes.numel()].clone()
        out = torch.full((128,), 7.0, dtype=torch.bfloat16)
        decode_as_tiles(codes, encoded.scales, fmt, packing, k, out)
        want = gs.mx.decode(encoded, fmt, size=k, packing=packing)
        assert torch.equal(out[:k].float().nan_to_num(99.0), want.nan_to_num(99.0))
        assert not out[k:].any()


_SCALES = """
#include "mx/block_scaled_config.h"
namespace gemmsim {
struct ScalesArgs { const float *x, *y, *z; float* out; int64_t n; };
constexpr MxFormat kFormat = FORMAT;
constexpr TensorConfig kConfig{TensorRoute::WARP, F32, Packing::LOW_FIRST, Packing::LOW_FIRST, kFormat, kFormat};
}
extern "C" __global__ void gemmsim_kernel(const gemmsim::ScalesArgs args) {
    gemmsim::TensorArgs g = {};
    for (int64_t i = 0; i < args.n; ++i) {
        g.second_a = args.y + i, g.second_b = args.z + i;
        args.out[i] = gemmsim::with_tensor_scales<gemmsim::kConfig>(args.x[i], g);
    }
}
"""


class _ScalesArgs(ctypes.Structure):
    _fields_ = [("x", c_void_p), ("y", c_void_p), ("z", c_void_p), ("out", c_void_p), ("n", c_int64)]


def test_both_tensors_scales_round_a_sum_once():
    """Against exact fractions, at ties of the product of two, subnormal and overflowing results, and specials."""
    rng = random.Random(5)
    draw = lambda e: math.ldexp(rng.getrandbits(24) | 1, rng.randint(*e) - 24)  # noqa: E731
    rows = [(rng.choice([1, -1]) * draw((-20, 20)), draw((-9, 9)), draw((-9, 9))) for _ in range(3000)]
    rows += [(draw((-140, -100)), draw((-30, 1)), draw((-9, 9))) for _ in range(500)]
    rows += [(draw((120, 128)), draw((0, 6)), draw((0, 3))) for _ in range(200)]
    rows += [(1 + 2.0**-23 * i, 1 + 2.0**-23 * j, 1.0) for i in range(1, 40) for j in (1, 2**22, 2**22 + 1)]
    rows += [(0.0, 0.5, 3.0), (math.inf, 0.5, 3.0), (-math.inf, 0.5, 3.0), (math.nan, 1.0, 1.0), (1.0, math.nan, 1.0)]
    x, y, z = (torch.tensor(column, dtype=torch.float32) for column in zip(*rows, strict=True))
    out = torch.empty_like(x)
    text = _SCALES.replace("FORMAT", mx_literal(parse_block("nvfp4/tensor")))
    args = _ScalesArgs(x.data_ptr(), y.data_ptr(), z.data_ptr(), out.data_ptr(), x.numel())
    run_on_host(KernelSource("test", "scales", text, threads=1), (1, 1, 1), args, fibers=False)
    for i, row in enumerate(zip(x.tolist(), y.tolist(), z.tolist(), strict=True)):
        exact = math.prod(map(Fraction, row)) if all(map(math.isfinite, row)) else math.prod(row)
        want = float(round_value(exact, Cast(FP32))) if isinstance(exact, Fraction) else exact
        assert float(out[i]) == want or (want != want and bool(out[i].isnan())), (row, float(out[i]), want)


_PLACES = """
#include "mx/block_scaled_descriptors.h"
namespace gemmsim { struct PlacesArgs { int32_t *chunk, *scale; uint64_t *descriptors; }; }
extern "C" __global__ void gemmsim_kernel(const gemmsim::PlacesArgs args) {
    for (int row = 0; row < 128; ++row) {
        for (int at = 0; at < 128; ++at) args.chunk[row * 128 + at] = gemmsim::chunk_place(row, at);
        for (int c = 0; c < 4; ++c) args.scale[row * 4 + c] = gemmsim::scale_place(row, c);
    }
    for (uint32_t i = 0; i < 4; ++i) {
        args.descriptors[2 * i] = gemmsim::chunk_descriptor(0x2400u + 32 * i);
        args.descriptors[2 * i + 1] = gemmsim::scale_descriptor(0x12600u + 512 * i);
    }
}
"""


class _PlacesArgs(ctypes.Structure):
    _fields_ = [("chunk", c_void_p), ("scale", c_void_p), ("descriptors", c_void_p)]


def test_places_and_descriptors_of_tensor_memory_kernels():
    """Scales lie as mx.to_blocked puts them; lines as the 128-byte swizzle does, which exchanges bits 4 to 6 of an address by
    bits 7 to 9; descriptors have the fields of the PTX manual."""
    chunk, scale = torch.empty(128, 128, dtype=torch.int32), torch.empty(128, 4, dtype=torch.int32)
    fields = torch.empty(4, 2, dtype=torch.int64)
    args = _PlacesArgs(chunk.data_ptr(), scale.data_ptr(), fields.data_ptr())
    run_on_host(KernelSource("test", "places", _PLACES, threads=1), (1, 1, 1), args, fibers=False)
    plain = torch.arange(128 * 128, dtype=torch.int32).view(128, 128)
    assert torch.equal(chunk, plain ^ (plain >> 7 & 7) << 4)
    assert sorted(chunk.flatten().tolist()) == list(range(128 * 128))
    blocked = gs.mx.to_blocked(torch.arange(512, dtype=torch.int32).view(128, 4).remainder(251).to(torch.uint8))
    tile = torch.zeros(512, dtype=torch.uint8)
    tile[scale.long().flatten()] = torch.arange(512).remainder(251).to(torch.uint8)
    assert torch.equal(tile, blocked)
    for i, (line, scales) in enumerate(fields.tolist()):
        for value, address, stride, swizzle in ((line, 0x2400 + 32 * i, 1024, 2), (scales, 0x12600 + 512 * i, 128, 0)):
            value &= (1 << 64) - 1
            assert (value & 0x3FFF) << 4 == address and (value >> 16 & 0x3FFF) == 0
            assert (value >> 32 & 0x3FFF) << 4 == stride and value >> 46 & 3 == 1 and value >> 61 == swizzle


def blocks(rows: int, k: int, name: str, packing: str) -> Coded:
    encoded = gs.mx.encode(torch.randn(rows, k), name, packing=packing)
    return Coded(encoded.codes, encoded.scales, parse_block(name), -1, k, packing)


def test_routes_follow_the_architecture_and_the_formats():
    mx8, mx4, nv4 = parse_block("mxfp8_e4m3"), parse_block("mxfp4"), parse_block("nvfp4")
    assert route_of("sm_80", mx8, mx8, "bytes", "bytes") == "WARP" == route_of("sm_100a", mx8, mx4, "bytes", "bytes")
    for fmt, packing in ((mx8, "bytes"), (mx4, "lo_first"), (nv4, "lo_first")):
        assert route_of("sm_100a", fmt, fmt, packing, packing) == "TENSOR_MEMORY"
    mx6 = parse_block("mxfp6_e3m2")
    assert route_of("sm_100a", mx6, mx6, "bytes", "bytes") == "WARP"
    assert route_of("sm_120a", mx6, mx6, "bytes", "bytes") == "BLOCK_SCALED"
    assert route_of("sm_90a", mx8, mx4, "bytes", "lo_first") == "WARP_GROUP"
    assert (
        route_of("sm_120a", mx8, mx4, "bytes", "bytes")
        == "BLOCK_SCALED"
        == route_of("sm_120a", nv4, nv4, "lo_first", "lo_first")
    )
    assert (
        route_of("sm_120a", mx8, mx4, "bytes", "lo_first")
        == "WARP"
        == route_of("sm_120a", mx4, nv4, "lo_first", "lo_first")
    )
    assert route_of("sm_120a", parse_block("mxint8"), mx8, "bytes", "bytes") == "WARP"


def test_operands_that_do_not_fit_are_refused_with_the_reason():
    a, b, out = (
        blocks(8, 64, "mxfp8_e4m3", "bytes"),
        blocks(16, 64, "mxfp8_e4m3", "bytes").transposed,
        torch.empty(8, 16),
    )
    assert refuses(a, b, out) is None
    args = tensor_args(a, b, out)
    assert (args.m, args.n, args.k, args.a_row, args.b_row, args.scale_b_row, args.out_row) == (
        8,
        16,
        64,
        64,
        64,
        2,
        16,
    )
    with pytest.raises(UnsupportedSpec, match="side by side"):
        cuda.gemm_tensor_cores(a, blocks(64, 16, "mxfp8_e4m3", "bytes"), out)
    with pytest.raises(UnsupportedSpec, match="multiples of 16 are needed"):
        cuda.gemm_tensor_cores(blocks(8, 64, "mxfp8_e4m3/b8", "bytes"), b, out)
    with pytest.raises(UnsupportedSpec, match="columns"):
        cuda.gemm_tensor_cores(a, b, out.t())


@pytest.mark.cuda
@pytest.mark.parametrize("route, arch, name, packing, instruction", [
    ("WARP_GROUP", "sm_90a", "mxfp8_e4m3", "bytes", "HGMMA"), ("BLOCK_SCALED", "sm_120a", "mxfp8_e4m3", "bytes", "QMMA"),
    ("BLOCK_SCALED", "sm_120a", "nvfp4", "lo_first", "OMMA"), ("TENSOR_MEMORY", "sm_100a", "mxfp8_e4m3", "bytes", "UTCQMMA"),
    ("TENSOR_MEMORY", "sm_100a", "nvfp4", "lo_first", "UTCOMMA"),
])  # fmt: skip
def test_kernels_become_the_instructions_that_are_meant(
    route, arch, name, packing, instruction, tmp_path, compiled_before
):
    fmt = parse_block(name)
    source = tensor_source(route, fmt, fmt, packing, packing, torch.float32)
    if compiled_before((source, arch)):
        return
    compiled = cuda.compile_kernel(source, arch)
    facts = sass_report.inspect_kernel(compiled)
    assert (facts.spills, facts.stack) == (0, 0)
    (tmp_path / "k.cubin").write_bytes(compiled.cubin)
    text = sass_report._output("nvdisasm", "-c", str(tmp_path / "k.cubin"))
    assert instruction in sass_report._parse(text).names
    if route == "TENSOR_MEMORY":  # scales are an operand in tensor memory, brought there by copies of 512 bytes
        issued = re.findall(
            rf"{instruction}(\.4X)? gdesc\[\w+\], gdesc\[\w+\], tmem\[\w+\], tmem\[\w+\], idesc\[\w+\], tmem\[", text
        )
        assert len(issued) >= 4 and set(issued) == {".4X" if name == "nvfp4" else ""}
        assert len(re.findall(r"UTCCP\.T\.S\.4x32dp128bit", text)) == (8 if name == "nvfp4" else 2)


def test_kernels_are_listed_for_the_architectures_that_have_their_instructions():
    listed = {
        arch: sum(source.runs_on(arch) for source in block_scaled_mma.sources())
        for arch in ("sm_80", "sm_90a", "sm_100a", "sm_120a")
    }
    assert listed == {"sm_80": 1, "sm_90a": 2, "sm_100a": 4, "sm_120a": 3}
