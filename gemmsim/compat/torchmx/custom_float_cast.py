"""Casts to floats of any width, as values."""

from __future__ import annotations

import math

from torch import Tensor

import gemmsim as gs

__all__ = ["hp_to_floatx"]

_ROUNDINGS = {"round_to_even": "rne", "truncate": "rtz"}


def hp_to_floatx(
    hp_data: Tensor,
    exponent_bits: int,
    mantissa_bits: int,
    max_normal: float,
    round_mode: str = "round_to_even",
    keep_subnormals: bool = True,
) -> Tensor:
    """``hp_data`` on the grid of floats with these widths and the bias 2^(exponent_bits-1)-1, in its own dtype.

    Values beyond ``max_normal``, infinities too, become it; NaN stays. Without subnormals what is below the smallest
    normal number is rounded to that or to zero.

    Raises:
        ValueError: for another ``round_mode``.
        DTypeError: for dtypes other than float ones.
    """
    if round_mode not in _ROUNDINGS:
        raise ValueError(f"round_mode {round_mode!r}; allowed: {', '.join(_ROUNDINGS)}.\n  Give one of these.")
    fmt = gs.formats.FloatFormat(
        mantissa_bits + 1,
        2 - 2 ** (exponent_bits - 1),
        math.frexp(max_normal)[1] - 1,
        specials=gs.formats.Specials.NONE,
        subnormals=keep_subnormals,
    )
    found = gs.quantize(hp_data, fmt, rounding=_ROUNDINGS[round_mode], overflow="clamp")
    return found.clamp(-max_normal, max_normal)
