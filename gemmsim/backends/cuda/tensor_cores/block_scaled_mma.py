"""Kernels of family ``gemm_tensor``: products of block formats on tensor cores (cutlass_kernels/mx/block_scaled_*.h).

The sums are those of tensor cores, so these products have other bits than those of accumulators. A spec that names the
block-scaled instruction itself runs it through ``native_mma_block_scaled``, once a self-check found it equal to its
model.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import c_int64, c_void_p
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import UnsupportedSpec
from gemmsim.formats import E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, BlockFormat, parse_block
from gemmsim.lowering.refusal import Refusal

from ...dtypes import KERNEL_DTYPES
from ...encoded_operand import Coded
from ...product import Ran
from ..casts.mx_format import mx_literal
from ..jit.launch import device_arch, launch
from ..jit.source import KernelSource
from ..ran import ran
from ..simt.block_scaled import own_scale
from ..simt.gemm import check_devices
from . import wgmma_dequantized
from .wgmma_dequantized import decodes_once

__all__ = ["TensorArgs", "gemm_tensor_cores", "refuses", "route_of", "run_tensor", "sources", "tensor_source"]

_THREADS, _TILE = 256, 128
#: gemmsim::TensorGemm<K>::SHARED_BYTES and gemmsim::ScaledGemm<K>::SHARED_BYTES.
_SHARED = {"WARP": 4 * _TILE * 128 + 1024, "WARP_GROUP": 4 * _TILE * 128 + 1024, "BLOCK_SCALED": 4 * _TILE * 48}
#: gemmsim::TmemGemm<K>::SHARED_BYTES without its scales.
_SHARED["TENSOR_MEMORY"] = 4 * _TILE * 128 + 1024 + 64
_ARCHS = {
    "WARP": (),
    "WARP_GROUP": ("sm_90a",),
    "BLOCK_SCALED": ("sm_120a", "sm_121a"),
    "TENSOR_MEMORY": ("sm_100a", "sm_103a"),
}
_HEADERS = {"BLOCK_SCALED": "block_scaled_mma.h", "TENSOR_MEMORY": "block_scaled_tcgen05.h"}
_PACKINGS = {"bytes": "BYTES", "lo_first": "LOW_FIRST"}
_SCALED_ELEMENTS = frozenset({E4M3, E5M2, E3M2, E2M3, E2M1})


class TensorArgs(ctypes.Structure):
    """gemmsim::TensorArgs, field by field."""

    _fields_ = [
        ("a", c_void_p), ("b", c_void_p), ("scale_a", c_void_p), ("scale_b", c_void_p),
        ("second_a", c_void_p), ("second_b", c_void_p), ("out", c_void_p),
        ("m", c_int64), ("n", c_int64), ("k", c_int64),
        ("a_row", c_int64), ("b_row", c_int64), ("scale_a_row", c_int64), ("scale_b_row", c_int64),
        ("out_row", c_int64),
    ]  # fmt: skip


def _is_native(a: BlockFormat, b: BlockFormat, packing_a: str, packing_b: str) -> bool:
    """Whether one block-scaled instruction takes both: mxf8f6f4 one code per byte, mxf4nvf4 two."""
    if not {a.element, b.element} <= _SCALED_ELEMENTS or packing_a != packing_b:
        return False
    if (a.scale, a.block_size) != (b.scale, b.block_size):
        return False
    if packing_a == "bytes":
        return (a.scale, a.block_size) == (E8M0, 32)
    return a.element == b.element == E2M1 and (a.scale, a.block_size) in ((E8M0, 32), (E4M3, 16))


def route_of(arch: str, a: BlockFormat, b: BlockFormat, packing_a: str, packing_b: str) -> str:
    """Return the gemmsim::TensorRoute on ``arch``.

    It is the block-scaled instruction where that exists and takes both formats. Otherwise it is the instruction of warp
    groups if ``arch`` has it, else that of warps, both on values in bfloat16.
    """
    if _is_native(a, b, packing_a, packing_b):
        if arch in _ARCHS["BLOCK_SCALED"]:
            return "BLOCK_SCALED"
        wide = packing_a == "lo_first" or all(x.element.bits == 8 for x in (a, b))
        if arch in _ARCHS["TENSOR_MEMORY"] and wide:
            return "TENSOR_MEMORY"
    return "WARP_GROUP" if arch in _ARCHS["WARP_GROUP"] else "WARP"


@lru_cache(maxsize=1024)
def tensor_source(
    route: str, a: BlockFormat, b: BlockFormat, packing_a: str, packing_b: str, out: torch.dtype
) -> KernelSource:
    """Return the kernel of one route, pair of formats and result dtype."""
    header = _HEADERS.get(route, "block_scaled_values.h")
    result = KERNEL_DTYPES[out].label
    config = (
        f".route = gemmsim::TensorRoute::{route}, .out = gemmsim::{result}, "
        f".packing_a = gemmsim::Packing::{_PACKINGS[packing_a]}, "
        f".packing_b = gemmsim::Packing::{_PACKINGS[packing_b]}, "
        f".a = {mx_literal(a)}, .b = {mx_literal(b)}"
    )
    text = (
        f'#include "mx/{header}"\n'
        f"constexpr gemmsim::TensorConfig kConfig{{{config}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) gemmsim_kernel(const gemmsim::TensorArgs args) {{\n'
        "    gemmsim::tensor_body<kConfig>(args, threadIdx.x, blockIdx.x, blockIdx.y);\n"
        "}\n"
    )
    name = f"{a}*{b}, {packing_a} {packing_b} to {result.lower()}, {route.lower()}"
    shared = _SHARED[route]
    if route == "TENSOR_MEMORY":  # add two buffers of both operands' scales for 128 bytes of each line
        shared += 4 * _TILE * (128 * (2 if packing_a == "lo_first" else 1) // a.block_size)
    return KernelSource("gemm_tensor", name, text, _THREADS, shared, archs=_ARCHS[route])


def refuses(a: Coded, b: Coded, out: Tensor) -> Refusal | None:
    """Return why ``gemm_tensor_cores`` does not take these operands, or ``None``."""
    for name, x, line, term in (("a", a, 0, 1), ("b", b, 1, 0)):
        if x.codes.dim() != 2:
            return Refusal("batches: it takes two matrices")
        if x.format.block_size % 16:
            return Refusal(f"{name} has blocks of {x.format.block_size}: multiples of 16 are needed")
        strides = x.codes.stride()
        if strides[term] != 1 or strides[line] % 16 or x.codes.data_ptr() % 16 or x.scales.stride(term) != 1:
            return Refusal(f"the terms of {name} do not lie side by side in lines that start at multiples of 16 bytes")
    if out.stride(-1) != 1:
        return Refusal("the result's columns do not lie side by side")
    if out.shape[1] > 65535 * _TILE:
        return Refusal(f"more than {65535 * _TILE} columns")
    return None


def gemm_tensor_cores(a: Coded, b: Coded, out: Tensor) -> Ran:
    """Write the product of ``a`` (M, K) and ``b`` (K, N) to ``out`` (M, N), with the sums of tensor cores.

    On sm_120a and sm_100a the block-scaled instructions mxf8f6f4, mxf4 and mxf4nvf4 read codes and scales of OCP
    formats (on sm_100a not those of 6 bits) and NVFP4 directly. On other architectures, and for other formats, element
    times scale is rounded to bfloat16 once (exact between 2^-133 and 2^128). Instructions of warp groups (sm_90a) or
    warps multiply these values. Scales of whole tensors multiply the sums, which are rounded to binary32 once. ``out``
    may have any float dtype, with rounding to nearest even.

    On sm_90a operands are decoded once where ``decodes_once`` counts fewer cycles. This takes 2 (M + N) K bytes of
    memory, and 4 M N for results that are not float32. Otherwise they are decoded in every tile, to the same numbers in
    the same order.

    Raises:
        UnsupportedSpec: if ``refuses`` gives a reason.
        CudaError: if the kernel cannot be compiled or launched.
    """
    refusal = refuses(a, b, out)
    if refusal is not None:
        asked = f"a product of {a.format} and {b.format} on tensor cores"
        raise UnsupportedSpec(f"{asked}: {refusal}.\n  Use gemmsim.mx.matmul, or decode the operands and use torch.mm.")
    check_devices(a.codes, b.codes, a.scales, b.scales, out)
    if out.numel() == 0:
        return ran()
    index = torch.cuda.current_device() if out.device.index is None else out.device.index
    route = route_of(device_arch(index), a.format, b.format, a.packing, b.packing)
    if route == "WARP_GROUP" and decodes_once(out, a.size):
        return ran(*wgmma_dequantized.gemm_decoded(a, b, out)).noted(
            "each operand decoded to bfloat16 once, by mx_cast"
        )
    source = tensor_source(route, a.format, b.format, a.packing, b.packing, out.dtype)
    run_tensor(source, a, b, out)
    return ran(source)


def run_tensor(source: KernelSource, a: Coded, b: Coded, out: Tensor) -> None:
    """Launch ``source`` on operands that ``refuses`` accepts."""
    args = tensor_args(a, b, out)
    launch(source, out.device, (-(-args.m // _TILE), -(-args.n // _TILE), 1), args)


def tensor_args(a: Coded, b: Coded, out: Tensor) -> TensorArgs:
    """Return the arguments of a product; ``out`` must have unit stride along its columns."""
    args = TensorArgs(m=out.shape[0], n=out.shape[1], k=a.size, out=out.data_ptr(), out_row=out.stride(0))
    args.a, args.a_row, args.scale_a, args.scale_a_row = (
        a.codes.data_ptr(), a.codes.stride(0), a.scales.data_ptr(), a.scales.stride(0),
    )  # fmt: skip
    args.b, args.b_row, args.scale_b, args.scale_b_row = (
        b.codes.data_ptr(), b.codes.stride(1), b.scales.data_ptr(), b.scales.stride(1),
    )  # fmt: skip
    args.second_a, args.second_b = (None if t is None else t.data_ptr() for t in map(own_scale, (a, b)))
    return args


def sources() -> Iterator[KernelSource]:
    """Yield a kernel of each route and kind of instruction."""
    e4m3, e3m2, e2m1, nvfp4 = (parse_block(name) for name in ("mxfp8_e4m3", "mxfp6_e3m2", "mxfp4", "nvfp4"))
    f32, bf16 = torch.float32, torch.bfloat16
    # This code is the same on every architecture and slow to compile, so only two architectures are listed.
    yield replace(tensor_source("WARP", e4m3, e2m1, "bytes", "lo_first", bf16), archs=("sm_80", "sm_100a"))
    yield tensor_source("WARP_GROUP", e4m3, e4m3, "bytes", "bytes", bf16)
    yield tensor_source("BLOCK_SCALED", e4m3, e3m2, "bytes", "bytes", bf16)
    yield tensor_source("BLOCK_SCALED", e2m1, e2m1, "lo_first", "lo_first", f32)
    yield tensor_source("TENSOR_MEMORY", e4m3, e4m3, "bytes", "bytes", f32)
    yield tensor_source("TENSOR_MEMORY", e2m1, e2m1, "lo_first", "lo_first", f32)
    yield tensor_source("TENSOR_MEMORY", replace(nvfp4, tensor_scale=True), nvfp4, "lo_first", "lo_first", f32)
    yield tensor_source("BLOCK_SCALED", replace(nvfp4, tensor_scale=True), nvfp4, "lo_first", "lo_first", f32)
    yield from wgmma_dequantized.sources()
