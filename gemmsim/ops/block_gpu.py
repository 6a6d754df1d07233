"""Products of operands in block formats on NVIDIA GPUs, where the accumulator takes scales apart from elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import BlockFormat

from . import kernels
from .block_operands import BlockOperand
from .finishing import Finish
from .seeds import Site

if TYPE_CHECKING:
    from gemmsim.backends.cuda import Blocks

__all__ = ["count_overflows", "finishes", "narrowed", "product"]


def finishes(spec: GemmSpec, finish: Finish) -> bool:
    """Whether the product's kernel takes ``finish`` as its last step."""
    from gemmsim.backends import cuda

    return cuda.finishes(spec, finish.cast)


def product(
    a: Tensor | BlockOperand,
    b: Tensor | BlockOperand,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    finish: Finish | None = None,
) -> object:
    """Write the product to ``out`` (\\*batch, M, N); returns what ran. ``finish``: one that it takes."""
    from gemmsim.backends import cuda

    left, right = _operands(a, b, spec, seed, out.shape[:-2])
    return cuda.gemm_blocks(left, right, spec, out, seed, finish)


def count_overflows(
    a: Tensor | BlockOperand, b: Tensor | BlockOperand, spec: GemmSpec, counts: Tensor, seed: int
) -> None:
    """Add the overflows of each element of the product to ``counts`` (\\*batch, M, N)."""
    from gemmsim.backends import cuda

    left, right = _operands(a, b, spec, seed, counts.shape[:-2])
    cuda.count_overflows_blocks(left, right, spec, counts, seed)


def _operands(
    a: Tensor | BlockOperand, b: Tensor | BlockOperand, spec: GemmSpec, seed: int, batch: torch.Size
) -> tuple[Tensor | Blocks, Tensor | Blocks]:
    left = _blocks(a, batch) if isinstance(a, BlockOperand) else _plain(a, spec, seed, Site.OPERAND_A, batch)
    right = _blocks(b, batch) if isinstance(b, BlockOperand) else _plain(b, spec, seed, Site.OPERAND_B, batch)
    return left, right


def narrowed(x: Tensor, y: Tensor, spec: GemmSpec) -> tuple[Tensor, Tensor]:
    """Both operands' values in bfloat16 if both are in block formats and it holds them; waits for the GPU to say so."""
    if not (isinstance(spec.a, BlockFormat) and isinstance(spec.b, BlockFormat)):
        return x, y
    small = x.bfloat16(), y.bfloat16()
    same = [((n.to(w.dtype) == w) | w.isnan()).all() for n, w in zip(small, (x, y), strict=True)]
    return small if bool(same[0] & same[1]) else (x, y)


def _plain(x: Tensor, spec: GemmSpec, seed: int, site: int, batch: torch.Size) -> Tensor:
    """A plain operand; a stochastic cast is done here, since its bits belong to the tensor as given."""
    cast = spec.cast_a if site == Site.OPERAND_A else spec.cast_b
    if cast is not None and cast.is_stochastic:
        x = kernels.quantize(x, cast, seed, site, widen=True)
    return x.expand(*batch, *x.shape[-2:])


def _blocks(x: BlockOperand, batch: torch.Size) -> Blocks:
    from gemmsim.backends import cuda

    codes, packing = x.codes, x.packing
    if packing not in ("bytes", "lo_first"):
        codes, packing = _one_a_byte(x), "bytes"
    second = None
    if x.format.tensor_scale:
        second = torch.as_tensor(x.tensor_scale, dtype=torch.float32, device=codes.device)
    codes, scales = (t.expand(*batch, *t.shape[-2:]) for t in (codes, x.scales))
    return cuda.Blocks(codes, scales, x.format, x.size, packing, second)


def _one_a_byte(x: BlockOperand) -> Tensor:
    """Codes of the other packings, one a byte."""
    codes = x.codes.movedim(x.dim, -1).to(torch.int32)
    if x.packing == "hi_first":
        found = torch.stack([codes >> 4, codes & 15], dim=-1)
    else:
        three = codes.unflatten(-1, (-1, 3))
        word = three[..., 0] | three[..., 1] << 8 | three[..., 2] << 16
        found = torch.stack([word >> 6 * j & 63 for j in range(4)], dim=-1)
    return found.flatten(-2)[..., : x.size].to(torch.uint8).movedim(-1, x.dim)
