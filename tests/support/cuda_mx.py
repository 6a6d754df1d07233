"""Conversions to and from block formats of the CUDA backend, with their kernels run on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int64, c_void_p

import pytest
import torch
from torch import Tensor

from gemmsim.backends import cpu
from gemmsim.backends.cuda.casts import mx_cast
from gemmsim.backends.cuda.casts.mx_format import mx_literal
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.formats import BlockFormat
from gemmsim.mx.arguments import code_shape, scale_shape
from support.cuda import run_on_host
from support.mx import inputs

#: Every element format, scale format, rule, rounding and mode.
MX_NAMES = [
    "mxfp8_e4m3", "mxfp8_e5m2/ceil", "mxfp6_e3m2/even", "mxfp6_e2m3/rceil", "mxfp4", "mxint8/ceil", "mxint4/rceil", "mxint2",
    "mx(e3m4)/b8/rna", "mxfp8_e4m3/rtz", "mxint8/rna/even", "nvfp4", "nvfp4/tensor/rtz", "mx(e4m3,e5m2)/b8",
    "mx(e5m2,e3m3)/b16", "mxfp4/torchao-0.18/rceil", "mxint8/torchao-0.18/even", "mxfp8_e5m2/torchao-0.18",
    "mxfp6_e2m3/torchao-0.6.1", "mxint8/torchmx", "mxfp8_e4m3/torchmx", "mxint4/microxcaling/rna",
    "mxfp8_e4m3/microxcaling/flush", "mxfp6_e3m2/microxcaling/rtz", "mxfp4/microxcaling/rna", "mxint8/microxcaling/rtz/flush",
]  # fmt: skip


def packings(fmt: BlockFormat) -> list[str]:
    """Those that take codes of the format's width."""
    return ["bytes", *{4: ["lo_first", "hi_first"], 6: ["dense"]}.get(fmt.element.bits, [])]


def hard_rows(width: int, count: int, seed: int) -> Tensor:
    """Rows of all the classes of the public vectors, of random bit patterns, and of spread magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    public = torch.from_numpy(inputs("f32").copy())
    picked = public[torch.randint(len(public), (count,), generator=generator)]
    bits = torch.randint(-(2**31), 2**31, (count, 32), generator=generator).to(torch.int32).view(torch.float32)
    spread = torch.randn(count, 32, generator=generator) * torch.exp2(
        torch.randint(-140, 120, (count, 1), generator=generator).float()
    )
    blocks = torch.cat([picked, bits, spread, torch.zeros(1, 32), -torch.zeros(1, 32)])
    return blocks[:, :width].contiguous()


def cpu_encode(
    x: Tensor, fmt: BlockFormat, dim: int = -1, packing: str = "bytes", second: float = 1.0
) -> tuple[Tensor, Tensor]:
    """What the CPU backend makes of ``x``."""
    dim %= x.dim()
    codes = torch.empty(code_shape(x.shape, dim, packing), dtype=torch.uint8)
    scales = torch.empty(scale_shape(x.shape, dim, fmt.block_size), dtype=torch.uint8)
    cpu.encode_blocks(x, fmt, codes, scales, dim, packing, second)
    return codes, scales


def _launch(source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure) -> None:
    run_on_host(source, blocks, args, fibers=", whole" in source.name)  # only these exchange magnitudes


@contextmanager
def on_host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx_cast, "launch", _launch)
        yield


def host_encode(
    x: Tensor, fmt: BlockFormat, dim: int = -1, packing: str = "bytes", second: Tensor | float | None = None
) -> tuple[Tensor, Tensor]:
    """``gemmsim.backends.cuda.encode_blocks`` into new tensors filled with what must not remain."""
    dim %= x.dim()
    codes = torch.full(code_shape(x.shape, dim, packing), 0xAA, dtype=torch.uint8)
    scales = torch.full(scale_shape(x.shape, dim, fmt.block_size), 0xAA, dtype=torch.uint8)
    with on_host():
        mx_cast.encode_blocks(x, fmt, codes, scales, dim, packing, second)
    return codes, scales


def host_decode(
    codes: Tensor,
    scales: Tensor,
    fmt: BlockFormat,
    out: Tensor,
    dim: int = -1,
    packing: str = "bytes",
    second: Tensor | float | None = None,
) -> Tensor:
    """``gemmsim.backends.cuda.decode_blocks``."""
    with on_host():
        mx_cast.decode_blocks(codes, scales, fmt, out, dim, packing, second)
    return out


def host_quantize_blocks(
    x: Tensor, fmt: BlockFormat, out: Tensor, dim: int = -1, second: Tensor | float | None = None
) -> Tensor:
    """``gemmsim.backends.cuda.quantize_blocks``."""
    with on_host():
        mx_cast.quantize_blocks(x, fmt, out, dim, second)
    return out


#: What tiles of products on tensor cores do with a line: a thread has 32 of its terms.
_DECODER = """
#include "mx/block_scaled_config.h"
namespace gemmsim {
struct DecoderArgs { const uint8_t *codes, *scales; uint16_t* out; int64_t k; };
constexpr MxFormat kFormat = FORMAT;
}
extern "C" __global__ void gemmsim_kernel(const gemmsim::DecoderArgs args) {
    gemmsim::TensorLine<gemmsim::kFormat, gemmsim::Packing::PACKING> line;
    const int64_t first = (blockIdx.x * THREADS + threadIdx.x) * 32;
    line.fetch(args.codes, args.scales, first, args.k, true);
    for (int i = 0; i < 4; ++i) *(gemmsim::MxPack<uint32_t, 4>*)(args.out + first + 8 * i) = line.values(i);
}
"""


class _DecoderArgs(ctypes.Structure):
    _fields_ = [("codes", c_void_p), ("scales", c_void_p), ("out", c_void_p), ("k", c_int64)]


def decode_as_tiles(codes: Tensor, scales: Tensor, fmt: BlockFormat, packing: str, k: int, out: Tensor) -> None:
    """Element times scale as a tile decodes them, of one line of ``k`` terms, into ``out`` in bfloat16, whose elements are a
    multiple of 32, and from 8192 on of that."""
    threads = min(256, out.numel() // 32)
    enumerator = {"bytes": "BYTES", "lo_first": "LOW_FIRST"}[packing]
    text = _DECODER.replace("FORMAT", mx_literal(fmt)).replace("PACKING", enumerator).replace("THREADS", str(threads))
    args = _DecoderArgs(codes.data_ptr(), scales.data_ptr(), out.data_ptr(), k)
    source = KernelSource("test", f"decoder {fmt}", text, threads=threads)
    run_on_host(source, (out.numel() // (threads * 32), 1, 1), args, fibers=False)
