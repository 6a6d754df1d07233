"""Kernels by instructions of warp groups with operands loaded by TMA (cutlass_kernels/gemm/tensor_cores/wgmma.h).

This module has their text and their records; ``native_mma`` and ``wgmma_block_scaled`` say what they compute.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint32, c_void_p
from dataclasses import dataclass

from torch import Tensor

from gemmsim.lowering.refusal import Refusal

from ..jit.source import KernelSource
from .cutlass_params import Lines, tensor_map

__all__ = ["COUNT", "GroupArgs", "Groups", "group_args", "group_source", "refuses_sizes", "set_scales"]

#: gemmsim::GROUP_THREADS, INSTRUCTION_M, INSTRUCTION_LINE, GROUP_STAGES.
_THREADS, _TILE, _LINE, _STAGES = 384, 128, 128, 6
#: Number of instructions of a chunk. A partial sum with scales has 1, 2 or 4 of them; one without also multiples of 4.
COUNT = 4
#: Number of scales of a partial sum in shared memory; number of words that say, for each of four warps, whether a scale
#: is far from 1.
_SCALES, _WARPS = 272, 4
_ALIGNING, _BARRIERS = 1024, 16
_ARCHS = ("sm_90a",)
#: Largest coordinate of TMA, which has 32-bit coordinates.
_MOST = 2**31 - 1


class GroupArgs(ctypes.Structure):
    """gemmsim::GroupArgs, field by field."""

    _fields_ = [
        ("map_a", c_uint8 * 128), ("map_b", c_uint8 * 128),
        ("out", c_void_p), ("scale_a", c_void_p), ("scale_b", c_void_p),
        ("m", c_int64), ("n", c_int64), ("k", c_int64), ("out_row", c_int64), ("out_batch", c_int64),
        ("scale_a_row", c_int64), ("scale_b_row", c_int64), ("scale_a_batch", c_int64), ("scale_b_batch", c_int64),
        ("tiles_m", c_uint32), ("step_a", c_int32), ("step_b", c_int32), ("unused", c_uint32 * 21),
    ]  # fmt: skip


@dataclass(frozen=True)
class Groups:
    """gemmsim::GroupConfig, with names of gemmsim::Element.

    ``period``: instructions of a chain whose sum is added to a register of binary32, 0 for one chain over all of K.
    ``scaled``: the sum is multiplied by the scales of its terms.
    """

    a: str
    b: str
    half_register: bool
    period: int
    scaled: bool


def group_source(groups: Groups, name: str) -> KernelSource:
    """Return the kernel with the name ``name``."""
    half, scaled = (str(x).lower() for x in (groups.half_register, groups.scaled))
    config = (
        f".a = gemmsim::Element::{groups.a}, .b = gemmsim::Element::{groups.b}, .half_register = {half}, "
        f".period = {groups.period}, .scaled = {scaled}"
    )
    text = (
        '#include "gemm/tensor_cores/wgmma.h"\n'
        f"constexpr gemmsim::GroupConfig kConfig{{{config}}};\n"
        f'extern "C" __global__ void __launch_bounds__({_THREADS}, 1) '
        "gemmsim_kernel(const __grid_constant__ gemmsim::GroupArgs args) {\n"
        "    gemmsim::group_body<kConfig>(args, threadIdx.x, blockIdx.x, blockIdx.y);\n"
        "}\n"
    )
    scales = 4 * (COUNT // groups.period * _SCALES + _WARPS) if groups.scaled else 0
    shared = _STAGES * (2 * _TILE * _LINE + scales + _BARRIERS) + _ALIGNING
    return KernelSource("gemm_instruction", name, text, _THREADS, shared, archs=_ARCHS)


def refuses_sizes(out: Tensor, line: int) -> Refusal | None:
    """Return why TMA cannot load operands of a product to ``out`` (\\*B, M, N) with lines of ``line`` bytes, or
    ``None``.
    """
    if max(*out.shape[-2:], line, out[..., 0, 0].numel()) > _MOST:
        return Refusal(f"a size beyond {_MOST}")
    return None


def group_args(a: Tensor, b: Tensor, k: int, size: int, out: Tensor) -> tuple[GroupArgs, tuple[Tensor, Tensor]]:
    """Return the record of a product of ``a`` (1 or B, M, bytes) and ``b`` (1 or B, N, bytes), and the tensors it
    points to.

    Lines have ``k`` terms of ``size`` bytes and start at multiples of 16. ``out`` is float32, (\\*B, M, N) without
    gaps.

    Raises:
        DriverError: if the driver refuses a tensor map.
    """
    m, n = out.shape[-2:]
    args = GroupArgs(m=m, n=n, k=k, out=out.data_ptr(), out_row=n, out_batch=m * n, tiles_m=-(-m // _TILE))
    a, b = _apart(a), _apart(b)
    args.step_a, args.step_b = int(a.shape[0] > 1), int(b.shape[0] > 1)
    if k:
        args.map_a[:], args.map_b[:] = _map(a, k * size), _map(b, k * size)
    return args, (a, b)


def _apart(x: Tensor) -> Tensor:
    """Return ``x`` with separate lines, because TMA accepts no stride of 0. A matrix that all batches share is
    stored once.
    """
    if x.stride(0) == 0:
        x = x[:1]
    return x.contiguous() if x.shape[1] > 1 and x.stride(1) == 0 else x


def _map(x: Tensor, size: int) -> bytes:
    """Return the tensor map of bytes of any meaning; bytes outside are zeros, and all others are unchanged."""
    batches, lines, width = x.shape
    line = x.stride(1) if lines > 1 else width
    whole = x.stride(0) if batches > 1 else line * lines
    return tensor_map(Lines(x.data_ptr(), size, lines, batches, line, whole, "UINT8"), _LINE, _TILE)


def set_scales(args: GroupArgs, a: Tensor, b: Tensor) -> None:
    """Put ``a`` (1 or B, M, sums) and ``b`` (1 or B, N, sums), float32 with contiguous last dimension, into ``args``.

    They are the scales of each partial sum.
    """
    args.scale_a, args.scale_a_row = a.data_ptr(), a.stride(1)
    args.scale_b, args.scale_b_row = b.data_ptr(), b.stride(1)
    args.scale_a_batch, args.scale_b_batch = (x.stride(0) if x.shape[0] > 1 else 0 for x in (a, b))
