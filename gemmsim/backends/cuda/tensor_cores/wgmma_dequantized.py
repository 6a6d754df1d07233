"""Products of two block formats by Hopper's warp groups, from operands that are decoded once.

``mx_cast`` decodes codes and scales to bfloat16. ``gemm_instruction`` multiplies these lines; ``gemm_collective``
multiplies large ones. ``gemm_tensor`` decodes the same numbers in every tile, and its instructions are the same chain:
k ascending, sixteen terms each, from +0. That costs less where few tiles share a line.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import c_int64, c_void_p
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec

from ...dtypes import KERNEL_DTYPES
from ...encoded_operand import Coded
from ..casts.cast import copy_rounded
from ..casts.mx_cast import decode_blocks
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..simt.block_scaled import own_scale
from ..simt.tile_heuristic import multiprocessors_of
from .cutlass_mainloop import LARGE, Collective, gemm_collective, refuses_collective
from .native_mma import Chain, chain_of, gemm_instruction, refuses_shape

__all__ = ["decoded_lines", "decodes_once", "gemm_decoded", "sources", "sums_source"]

_TILE, _TERMS, _THREADS = 128, 64, 256
_ARCHS = ("sm_90a",)
#: Cycles of a multiprocessor for a chunk of a tile (``docs/design/gpu_limits.md``): for decoding and multiplying it,
#: and for the products alone.
_INSIDE, _PRODUCTS = 2010, 512
#: Bytes that decoding moves per element, and bytes per cycle of a whole GPU (3.35 TB/s at 1.98 GHz, an H100).
_ELEMENT_BYTES, _CYCLE_BYTES = 3, 1690
#: Cycles during which the host launches two more kernels, 10 microseconds each.
_LAUNCHES = 40_000
#: Number of terms in 16 bytes, at multiples of which lines start.
_ALIGNED = 8
_COLLECTIVE = Collective("bf16", "bf16")


class _SumsArgs(ctypes.Structure):
    """gemmsim::TensorSumsArgs, field by field."""

    _fields_ = [
        ("sums", c_void_p), ("second_a", c_void_p), ("second_b", c_void_p), ("out", c_void_p),
        ("n", c_int64), ("out_row", c_int64),
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _product() -> tuple[GemmSpec, Chain]:
    """Return the spec that names the chain of instructions, and the chain."""
    spec = GemmSpec.of(":hw(hopper, wgmma, bf16)")
    chain = chain_of(spec.accumulator)
    assert isinstance(chain, Chain), chain
    return spec, chain


def decodes_once(out: Tensor, k: int) -> bool:
    """Whether a product of ``k`` terms to ``out`` (M, N) costs less from operands that are decoded once, on Hopper.

    The function compares the cycles that decoding in tiles takes from the multiprocessor with the most tiles with those
    of a pass over each operand and its launch. The result is ``False`` for sizes that the product's kernels do not
    support.
    """
    m, n = out.shape
    tiles = -(-m // _TILE) * -(-n // _TILE)
    saved = -(-tiles // multiprocessors_of(out.device)) * -(-k // _TERMS) * (_INSIDE - _PRODUCTS)
    if saved <= (m + n) * k * _ELEMENT_BYTES / _CYCLE_BYTES + _LAUNCHES:
        return False
    return refuses_shape(out, k + _ALIGNED, _product()[1]) is None


def decoded_lines(x: Coded) -> Tensor:
    """Return element times scale in bfloat16 (lines, terms), padded with zeros to a multiple of 16 bytes.

    ``x`` has its terms along the last dimension. Values are rounded once, as ``gemm_tensor`` decodes them in its tiles.
    Scales of the whole tensor are left out.
    """
    lines, terms = len(x.codes), x.size
    found = torch.empty(lines, -(-terms // _ALIGNED) * _ALIGNED, dtype=torch.bfloat16, device=x.device)
    found[:, terms:].zero_()
    fmt = replace(x.format, tensor_scale=False)
    decode_blocks(x.codes.contiguous(), x.scales.contiguous(), fmt, found[:, :terms], 1, x.packing)
    return found


@lru_cache(maxsize=64)
def sums_source(a: bool, b: bool, out: torch.dtype) -> KernelSource:
    """Return the kernel that multiplies sums by the scales of both tensors, or of the one that has a scale."""
    result = KERNEL_DTYPES[out].label
    flags = f"{str(a).lower()}, {str(b).lower()}"
    text = (
        '#include "mx/block_scaled_sums.h"\n'
        f'extern "C" __global__ void __launch_bounds__({_THREADS}) '
        "gemmsim_kernel(const gemmsim::TensorSumsArgs args) {\n"
        f"    gemmsim::tensor_sums_body<gemmsim::{result}, {flags}>(args, threadIdx.x, blockIdx.x, blockIdx.y);\n"
        "}\n"
    )
    sides = " and ".join(name for name, has in (("a", a), ("b", b)) if has)
    return KernelSource("gemm_tensor", f"scales of {sides} on sums to {result.lower()}", text, _THREADS, archs=_ARCHS)


def gemm_decoded(a: Coded, b: Coded, out: Tensor) -> tuple[KernelSource, ...]:
    """Write the product of ``a`` (M, K) and ``b`` (K, N) to ``out`` (M, N) as ``gemm_tensor_cores`` does.

    Return the kernels of the product and of the scales that ran. Call ``decodes_once`` first. The function takes 2 (M +
    N) K bytes of memory for values, and 4 M N for sums that are not the result itself.

    Raises:
        CudaError: if a kernel cannot be compiled or launched.
    """
    left, right = decoded_lines(a), decoded_lines(b.transposed).mT
    spec, chain = _product()
    scaled = a.format.tensor_scale or b.format.tensor_scale
    direct = out.dtype == torch.float32 and out.is_contiguous() and not scaled
    sums = out if direct else torch.empty(out.shape, dtype=torch.float32, device=out.device)
    if out.numel() * left.shape[1] >= LARGE and refuses_collective(left, sums) is None:
        source = gemm_collective(left, right, spec, sums, 0, _COLLECTIVE)
    else:
        source = gemm_instruction(left, right, spec, sums, 0, chain)
    if scaled:
        return source, _scale_sums(sums, a, b, out)
    if not direct:
        copy_rounded(sums, out)
    return (source,)


def _scale_sums(sums: Tensor, a: Coded, b: Coded, out: Tensor) -> KernelSource:
    """Write ``sums`` times the tensors' own scales to ``out``, rounded to binary32 once, then to its dtype."""
    m, n = out.shape
    args = _SumsArgs(sums=sums.data_ptr(), out=out.data_ptr(), n=n, out_row=out.stride(0))
    args.second_a, args.second_b = (None if t is None else t.data_ptr() for t in map(own_scale, (a, b)))
    source = sums_source(a.format.tensor_scale, b.format.tensor_scale, out.dtype)
    launch(source, out.device, (m, -(-n // _THREADS), 1), args)
    return source


def sources() -> Iterator[KernelSource]:
    """Yield a kernel that scales sums; kernels of products belong to other families."""
    yield sums_source(True, True, torch.bfloat16)
