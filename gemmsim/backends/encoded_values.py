"""Decodes operands in block formats to elements and scales separately, with ``decode_blocks`` of one backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.formats import E8M0, BlockFormat, ScaleRule

from .encoded_operand import Coded

__all__ = ["Decoder", "ONE", "elements_of", "factors_of", "scale_table"]

#: The function ``decode_blocks`` of a backend.
Decoder = Callable[[Tensor, Tensor, BlockFormat, Tensor, int, str], None]
#: The code of 1 in e8m0.
ONE = 127
#: Number of terms that a thread of a GPU decodes.
_UNSCALED = 32


def elements_of(x: Coded, decode_blocks: Decoder) -> Tensor:
    """Return each element without its scale, in float32, which represents all of them.

    ``decode_blocks`` is that of the device of ``x``.
    """
    elements = torch.empty(x.shape, dtype=torch.float32, device=x.codes.device)
    if elements.numel():
        whole = replace(
            x.format,
            block_size=_UNSCALED if elements.is_cuda else x.size,
            scale=E8M0,
            rule=ScaleRule.FLOOR,
            tensor_scale=False,
        )
        blocks = -(-x.size // whole.block_size)
        shape = [blocks if d == elements.dim() + x.dim else n for d, n in enumerate(elements.shape)]
        ones = torch.full((1,), ONE, dtype=torch.uint8, device=elements.device).expand(shape)
        decode_blocks(x.codes, ones, whole, elements, x.dim, x.packing)
    return elements


def factors_of(x: Coded) -> Tensor:
    """Return the scales in float64."""
    return scale_table(x.format).to(x.scales.device)[x.scales.long()]


@lru_cache(maxsize=64)
def scale_table(fmt: BlockFormat) -> Tensor:
    """Return the value of each scale code in float64; NaN for codes that the format does not have."""
    values = [fmt.scale.decode(code) for code in range(1 << fmt.scale.bits)]
    return torch.tensor(values + [float("nan")] * (256 - len(values)), dtype=torch.float64)
