"""Operands into a native dtype, and native results out of it, by the backend of the tensors' device: each value rounded
once."""

from __future__ import annotations

from torch import Tensor

from gemmsim.formats import Cast

from .backend import backend_of
from .conversions import FORMATS, Conversions, is_conversion

__all__ = ["FORMATS", "cast_into", "cast_operand", "copy_rounded", "is_conversion", "quantize_into"]


def _quantize(x: Tensor, cast: Cast, out: Tensor, seed: int, site: int, start: int) -> None:
    """``quantize`` of the backend of the tensors' device. That of CUDA is loaded when a CUDA tensor asks for it."""
    backend_of(x).quantize(x, cast, out, seed, site, start)


_conversions = Conversions(_quantize)
quantize_into, copy_rounded = _conversions.quantize_into, _conversions.copy_rounded
cast_into, cast_operand = _conversions.cast_into, _conversions.cast_operand
