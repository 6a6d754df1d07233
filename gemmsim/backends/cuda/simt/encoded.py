"""Products on CUDA of operands in block formats, for accumulators that separate scales from elements.

This module converts the operands to what kernels read; ``block_scaled`` launches the kernels.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.abi_constants import Site

from ...dtypes import carrier_dtype
from ...encoded_operand import Coded
from ...epilogue import Finish
from ...product import Ran
from ..casts.cast import cast_into
from .block_scaled import PACKINGS, count_overflows_blocks, gemm_blocks

__all__ = ["count_coded_overflows", "gemm_coded", "one_a_byte", "operands_of", "readable"]


def gemm_coded(
    a: Tensor | Coded,
    b: Tensor | Coded,
    spec: GemmSpec,
    out: Tensor,
    seed: int = 0,
    finish: Finish | None = None,
    row: int = 0,
) -> Ran:
    """Write the product that ``spec`` means into ``out`` (\\*B, M, N).

    ``finish`` must be an epilogue for which ``finishes`` is true. Codes and scales are read as they are stored, where
    kernels support their packing.

    Raises:
        UnsupportedSpec, ValueError, CudaError: as ``gemm_blocks``.
    """
    left, right = operands_of(a, b, spec, seed, out.shape[:-2])
    return gemm_blocks(left, right, spec, out, seed, finish, row)


def count_coded_overflows(a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, counts: Tensor, seed: int = 0) -> Ran:
    """Add to ``counts`` (\\*B, M, N), int64, how often each element's register left its range.

    Raises:
        UnsupportedSpec, ValueError, CudaError: as ``count_overflows_blocks``.
    """
    left, right = operands_of(a, b, spec, seed, counts.shape[:-2])
    return count_overflows_blocks(left, right, spec, counts, seed)


def operands_of(
    a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, seed: int, batch: torch.Size
) -> tuple[Tensor | Coded, Tensor | Coded]:
    """Return both operands as kernels read them, expanded to the batch."""
    left = readable(a, batch) if isinstance(a, Coded) else _plain(a, spec, seed, Site.OPERAND_A, batch)
    right = readable(b, batch) if isinstance(b, Coded) else _plain(b, spec, seed, Site.OPERAND_B, batch)
    return left, right


def _plain(x: Tensor, spec: GemmSpec, seed: int, site: int, batch: torch.Size) -> Tensor:
    """Return a plain operand. A stochastic cast is applied here, because its bits belong to the tensor as given."""
    cast = spec.cast_a if site == Site.OPERAND_A else spec.cast_b
    if cast is not None and cast.is_stochastic:
        rounded = torch.empty_like(x, dtype=carrier_dtype(cast.format, x.dtype))
        cast_into(x, cast, rounded, seed, site)
        x = rounded
    return x.expand(*batch, *x.shape[-2:])


def readable(x: Coded, batch: torch.Size) -> Coded:
    """Return the operand as kernels read it, expanded to the batch.

    It has a packing that kernels support, and its own scale in float32 on the device.
    """
    codes, packing = x.codes, x.packing
    if packing not in PACKINGS:
        codes, packing = one_a_byte(x), "bytes"
    second: float | Tensor = 1.0
    if x.format.tensor_scale:
        second = torch.as_tensor(x.tensor_scale, dtype=torch.float32, device=codes.device)
    codes, scales = (t.expand(*batch, *t.shape[-2:]) for t in (codes, x.scales))
    return replace(x, codes=codes, scales=scales, packing=packing, tensor_scale=second)


def one_a_byte(x: Coded) -> Tensor:
    """Return codes of the other packings as one code per byte."""
    codes = x.codes.movedim(x.dim, -1).to(torch.int32)
    if x.packing == "hi_first":
        found = torch.stack([codes >> 4, codes & 15], dim=-1)
    else:
        three = codes.unflatten(-1, (-1, 3))
        word = three[..., 0] | three[..., 1] << 8 | three[..., 2] << 16
        found = torch.stack([word >> 6 * j & 63 for j in range(4)], dim=-1)
    return found.flatten(-2)[..., : x.size].to(torch.uint8).movedim(-1, x.dim)
