"""microxcaling's ``mx.custom_extensions``: its C++ and CUDA functions by name, computed here on every device.

They take exponents from the bits, which is what microxcaling's sources say; they are not compared with its binaries.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from .blocks import _by_steps, _quantize_mx
from .elementwise import _quantize_elemwise_core
from .formats import ElemFormat, RoundingMode, _get_format_params

__all__ = ["funcs"]


def _kind(ebits: int, mbits: int, max_norm: float) -> ElemFormat:
    """The element format of these parameters.

    Raises:
        ValueError: where there is none.
    """
    for kind in ElemFormat:
        found = _get_format_params(kind)
        if (found.ebits, found.mbits, found.max_norm) == (ebits, mbits, max_norm):
            return kind
    names = ", ".join(kind.name for kind in ElemFormat)
    raise ValueError(f"ebits={ebits}, mbits={mbits}, max_norm={max_norm}; allowed: those of {names}.\n  Use one.")


def _quantize_elemwise(
    A: Tensor,
    bits: int,
    exp_bits: int,
    max_norm: float,
    rmode: int = 0,
    saturate_normals: bool = False,
    allow_denorm: bool = True,
) -> Tensor:
    """``_quantize_elemwise_core`` with ``custom_cuda``; ``rmode`` is a ``RoundingMode``."""
    round = RoundingMode(rmode).name
    return _quantize_elemwise_core(A, bits, exp_bits, max_norm, round, saturate_normals, allow_denorm, True)


def _quantize_blocks(
    A: Tensor,
    scale_bits: int,
    elem_ebits: int,
    elem_mbits: int,
    elem_max_norm: float,
    max_values: Tensor,
    axis: int,
    flush_fp32_subnorms: bool = False,
    rmode: int = 0,
) -> Tensor:
    """Blocks are the whole of ``axis``; ``max_values`` their largest magnitudes, of one element there."""
    x = A.detach() if A.dtype == torch.float64 else A.detach().float()
    kind, round = _kind(elem_ebits, elem_mbits, elem_max_norm), RoundingMode(rmode).name
    largest = max_values.to(x.dtype).movedim(axis, -1)
    found = _by_steps(x.movedim(axis, -1), kind, scale_bits, round, flush_fp32_subnorms, True, largest)
    return found.movedim(-1, axis).to(A.dtype).contiguous()


def _quantize_tiles(
    A: Tensor,
    scale_bits: int,
    elem_ebits: int,
    elem_mbits: int,
    elem_max_norm: float,
    tile_size: int,
    axis: int,
    flush_fp32_subnorms: bool = False,
    rmode: int = 0,
) -> Tensor:
    """``_quantize_mx`` with ``custom_cuda`` of blocks of ``tile_size`` along ``axis``."""
    kind, round = _kind(elem_ebits, elem_mbits, elem_max_norm), RoundingMode(rmode).name
    return _quantize_mx(A, scale_bits, kind, "max", [axis], tile_size, round, flush_fp32_subnorms, True)


def _sum(A: Tensor) -> Tensor:
    """The sum along the last dimension, in PyTorch's order."""
    return A.sum(-1)


def _max(A: Tensor) -> Tensor:
    """The largest along the last dimension."""
    return A.amax(-1)


funcs = SimpleNamespace(
    quantize_elemwise_func_cpp=_quantize_elemwise,
    quantize_elemwise_func_cuda=_quantize_elemwise,
    quantize_mx_func_cpp=_quantize_blocks,
    quantize_mx_func_cuda=_quantize_blocks,
    quantize_mx_by_tile_func_cuda=_quantize_tiles,
    reduce_sum_inner_dim=_sum,
    reduce_max_inner_dim=_max,
)
