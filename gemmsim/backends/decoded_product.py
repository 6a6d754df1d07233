"""What is left of a spec whose operands in block formats are decoded before the product."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.formats import BlockFormat

__all__ = ["decoded_product", "plain_spec"]


@lru_cache(maxsize=4096)
def plain_spec(spec: GemmSpec) -> GemmSpec:
    """Return ``spec`` for operands that already have the values of its block formats; ordinary casts stay."""
    return replace(spec, a=spec.cast_a, b=spec.cast_b)


def decoded_product(spec: GemmSpec) -> tuple[GemmSpec, torch.dtype] | None:
    """Return the spec of the product of decoded values and the dtype that libraries get them in.

    The result is ``None`` without block formats, and where the accumulator takes codes and scales.
    """
    if not spec.has_blocks or takes_scales(spec.accumulator):
        return None
    both = isinstance(spec.a, BlockFormat) and isinstance(spec.b, BlockFormat)
    return plain_spec(spec), torch.bfloat16 if both else torch.float32
