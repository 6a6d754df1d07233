"""Converts operands to a native dtype, and native results from it, with the backend of the tensors' device.

Each value is rounded once.
"""

from __future__ import annotations

from torch import Tensor

from gemmsim.formats import Cast

from .backend import backend_of
from .conversions import FORMATS, Conversions, is_conversion

__all__ = ["FORMATS", "cast_into", "cast_operand", "copy_rounded", "is_conversion", "quantize_into"]


def _quantize(x: Tensor, cast: Cast, out: Tensor, seed: int, site: int, start: int) -> None:
    """Call ``quantize`` of the backend of the tensors' device. The first CUDA tensor loads the CUDA backend."""
    backend_of(x).quantize(x, cast, out, seed, site, start)


_conversions = Conversions(_quantize)
quantize_into, copy_rounded = _conversions.quantize_into, _conversions.copy_rounded
cast_into, cast_operand = _conversions.cast_into, _conversions.cast_operand
