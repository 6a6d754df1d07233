"""Formats of IEEE P3109 v4.0 (26 June 2026, public interim report): binaryK with precision P."""

from __future__ import annotations

from .bit_layout import P3109_MAX_K, P3109_MIN_K
from .checks import check_int
from .float_format import FloatFormat
from .specials import Specials

__all__ = ["binary_format"]


def binary_format(
    k: int, p: int, *, signed: bool = True, extended: bool = True, bias: int | None = None
) -> FloatFormat:
    """The P3109 format ``Binary{k}p{p}{s|u}{e|f}``.

    ``bias`` defaults to the standard's: 2^(k-p-1) signed, 2^(k-p) unsigned. Signed formats have one NaN at code 2^(k-1)
    and no -0; unsigned ones have NaN at 2^k-1. The extended domain has infinities, the finite one does not.

    Raises:
        FormatError: unless 3 <= k <= 16 and 1 <= p < k (signed) or 1 <= p <= k (unsigned).

    Example:
        >>> fmt = gs.formats.binary_format(8, 4)
        >>> fmt.name, fmt.max, fmt.decode(0x80)
        ('binary8p4se', 224.0, nan)
    """
    k = check_int("binary_format", "k", k, P3109_MIN_K, P3109_MAX_K)
    p = check_int(f"binary_format with k={k}, signed={signed}", "p", p, 1, k - 1 if signed else k)
    specials = Specials.P3109_EXTENDED if extended else Specials.P3109_FINITE
    exponent_bits = k - p if signed else k - p + 1
    return FloatFormat.from_widths(exponent_bits, p - 1, specials, bias=bias, signed=signed)
