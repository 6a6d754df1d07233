"""Casts to floats of any width, as values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import gemmsim as gs

__all__ = ["RoundModeError", "hp_to_floatx"]

_ROUNDINGS = {"round_to_even": "rne", "truncate": "rtz"}


class RoundModeError(ValueError, AssertionError):
    """An unknown ``round_mode``: a ``ValueError``, and the ``AssertionError`` that torchmx raises.

    Example:
        >>> from gemmsim.compat.torchmx.custom_float_cast import RoundModeError
        >>> issubclass(RoundModeError, AssertionError)
        True
    """


def hp_to_floatx(
    hp_data: Tensor,
    exponent_bits: int,
    mantissa_bits: int,
    max_normal: float,
    round_mode: str = "round_to_even",
    keep_subnormals: bool = True,
) -> Tensor:
    """Round ``hp_data`` to floats with these widths and the bias 2^(exponent_bits-1)-1, in its own dtype.

    Values beyond ``max_normal`` become ``max_normal`` (the largest number of ``hp_data``'s dtype where that is
    smaller). Infinities and NaN stay, and -0 becomes +0. Without subnormals, values below the smallest normal number
    become +0.

    Raises:
        RoundModeError: for another ``round_mode``.
        DTypeError: for dtypes other than float ones; torchmx takes float32 and float64.

    Example:
        >>> from gemmsim.compat.torchmx.custom_float_cast import hp_to_floatx
        >>> hp_to_floatx(torch.tensor([0.3, 1000.0]), exponent_bits=4, mantissa_bits=3, max_normal=240.0)
        tensor([  0.3125, 240.0000])
    """
    if round_mode not in _ROUNDINGS:
        raise RoundModeError(f"round_mode {round_mode!r}; allowed: {', '.join(_ROUNDINGS)}.\n  Give one of these.")
    smallest = 2 - 2 ** (exponent_bits - 1)
    fmt = gs.formats.FloatFormat(
        mantissa_bits + 1, smallest, math.frexp(max_normal)[1] - 1, specials=gs.formats.Specials.NONE
    )
    found = gs.quantize(hp_data, fmt, rounding=_ROUNDINGS[round_mode], overflow="clamp")
    limit = min(max_normal, torch.finfo(hp_data.dtype).max)
    found = torch.where(hp_data.isinf(), hp_data, found.clamp(-limit, limit))
    flushed = hp_data == 0 if keep_subnormals else hp_data.abs() < 2.0**smallest
    return torch.where(flushed, 0.0, found)
