"""Widths of integer accumulators that no input can make overflow.

A2Q: Colbert, Pappalardo, Petri-Koenig, "A2Q: accumulator-aware quantization with guaranteed overflow avoidance",
ICCV 2023 (the bound by weights, section 3; solved for P here). A2Q+: Colbert, Pappalardo, Petri-Koenig, Umuroglu,
"A2Q+: improving accumulator-aware weight quantization", ICML 2024 (the bound for weights that sum to zero).
"""

from __future__ import annotations

from typing import Any

from ..formats import FixedFormat, Format, FormatError, parse_scalar
from .errors import SpecError, SpecFormatError, spec_error

__all__ = ["min_accumulator_bits", "overflow_certificate"]

_BOUNDS = ("a2q", "a2q+", "exact")


def min_accumulator_bits(w: Any, x_format: str | Format, *, k_dim: int | None = None, bound: str = "a2q") -> int:
    """The width P of a signed accumulator in which no sum over K overflows, for any input and any order.

    P is the least width that the bound certifies. With N the bits of ``x_format`` and l1 the sum of magnitudes of the
    weights of one output, A2Q requires ``l1 * 2^(N - signed) <= 2^(P-1) - 1``; A2Q+, for weights that sum to zero,
    requires ``l1 * (2^N - 1) <= 2^P - 2``. "exact" adds, for each weight, the largest and the least product with an
    input of the format. Some input reaches these two sums, so no smaller P holds them.

    Args:
        w: integer weights, a matrix: nested lists, an array or a tensor, of any dtype.
        x_format: integer format of the inputs: "int8", "uint8", "int4", ...
        k_dim: the dimension of ``w`` that sums run along: 1 (or -1) for a layer's weight (outputs, K), 0 (or -2) for
            the second operand of a product (K, N), which ``gemmsim.capture`` writes with "k_dim_b" in its metadata. It
            is required, since the other dimension gives another width.
        bound: "a2q" or "a2q+", as published, or "exact", which is never wider than "a2q". For unsigned inputs "a2q"
            takes up to a bit more, because it does not use that the products of one weight all have one sign.

    Returns the largest width of any output; 1 for no outputs or no weights.

    Raises:
        SpecError: for no or another ``k_dim``, an input format with a fraction, an unknown bound, or "a2q+" of weights
            that do not sum to zero.
        ValueError: for weights that are not integers, or not a matrix.

    Example:
        >>> gs.acc.min_accumulator_bits([[10, -20, 30]], "int8", k_dim=1)  # 60 * 128 needs 14 bits
        14
        >>> widths = [gs.acc.min_accumulator_bits([[9, -9]], "uint8", k_dim=1, bound=one) for one in ("a2q", "exact")]
        >>> widths  # 18 * 256 needs 14 bits, but the sums are between -9 * 255 and 9 * 255
        [14, 13]
    """
    rows = _rows("min_accumulator_bits", w, k_dim)
    fmt = _input_format("min_accumulator_bits", x_format)
    _check_bound("min_accumulator_bits", bound)
    if bound == "a2q+":
        biased = next((index for index, row in enumerate(rows) if sum(row)), None)
        if biased is not None:
            raise spec_error(
                f"min_accumulator_bits: bound='a2q+' with output {biased}, whose weights sum to {sum(rows[biased])}",
                "weights that sum to zero",
                "Use bound='a2q', or centre the weights.",
            )
    return max((_width(row, fmt, bound) for row in rows), default=1)


def overflow_certificate(
    w: Any, x_format: str | Format, P: int, *, k_dim: int | None = None, bound: str = "a2q"
) -> Any:
    """Whether each output's sum can never overflow a signed accumulator of ``P`` bits, for any input and any order.

    The condition is that of ``min_accumulator_bits``. Published bounds are sufficient: there, False does not prove an
    overflow. With "exact" it does: some input makes the sum of that output overflow. With "a2q+" an output whose
    weights do not sum to zero gets False.

    Args:
        w, x_format, k_dim, bound: as in ``min_accumulator_bits``.
        P: width of the accumulator, sign included.

    Returns a list with one bool per output; for a torch tensor a bool tensor on its device.

    Raises:
        SpecError: for no or another ``k_dim``, an input format with a fraction, an unknown bound or a P below 1.
        ValueError: for weights that are not integers, or not a matrix.

    Example:
        >>> gs.acc.overflow_certificate([[10, -20, 30], [1, 2, 3]], "int8", 13, k_dim=1)
        [False, True]
    """
    rows = _rows("overflow_certificate", w, k_dim)
    fmt = _input_format("overflow_certificate", x_format)
    _check_bound("overflow_certificate", bound)
    if isinstance(P, bool) or not isinstance(P, int) or P < 1:
        raise spec_error(f"overflow_certificate: P={P!r}", "an integer from 1", "Give the width of the accumulator.")
    safe = [_width(row, fmt, bound) <= P and (bound != "a2q+" or not sum(row)) for row in rows]
    # A tensor makes the tensor: this package works without torch.
    return w.new_tensor([int(flag) for flag in safe]) != 0 if hasattr(w, "new_tensor") else safe


def _width(row: list[int], fmt: FixedFormat, bound: str) -> int:
    if bound == "exact":
        low, high = fmt.min_significand, fmt.max_significand
        least = sum(min(w * low, w * high) for w in row)
        most = sum(max(w * low, w * high) for w in row)
        return max(most, -least - 1).bit_length() + 1
    l1 = sum(map(abs, row))
    if bound == "a2q":
        # v <= 2^(P-1) - 1 says that v has at most P - 1 bits.
        return (l1 << (fmt.bits - int(fmt.signed))).bit_length() + 1
    return (l1 * ((1 << fmt.bits) - 1) + 1).bit_length()


def _input_format(owner: str, x_format: str | Format) -> FixedFormat:
    try:
        fmt = parse_scalar(x_format) if isinstance(x_format, str) else x_format
    except FormatError as error:
        raise SpecFormatError(f"{owner}, x_format: {error}") from error
    if not isinstance(fmt, FixedFormat) or fmt.frac or not fmt.clamp:
        raise _input_error(owner, x_format)
    return fmt


def _input_error(owner: str, x_format: object) -> SpecError:
    return spec_error(f"{owner}: x_format={x_format!r}", "int8, uint8, int4, ...: integers of N bits", "Name one.")


def _check_bound(owner: str, bound: str) -> None:
    if bound not in _BOUNDS:
        raise spec_error(f"{owner}: bound={bound!r}", " or ".join(map(repr, _BOUNDS)), "Use one of them.")


def _rows(owner: str, w: Any, k_dim: object) -> list[list[int]]:
    """The weights of each output."""
    if isinstance(k_dim, bool) or k_dim not in (0, 1, -1, -2):
        allowed = "1 for a layer's weight (outputs, K), 0 for the second operand of a product (K, N)"
        raise spec_error(f"{owner}: k_dim={k_dim!r}", allowed, "Say along which dimension of w the sums run.")
    nested = w.tolist() if hasattr(w, "tolist") else w
    if not isinstance(nested, (list, tuple)) or any(not isinstance(row, (list, tuple)) for row in nested):
        raise ValueError("weights that are not a matrix; allowed: two dimensions.\n  Flatten each output's weights.")
    rows = [[_integer(x) for x in row] for row in nested]
    return rows if k_dim in (1, -1) else [list(column) for column in zip(*rows, strict=True)]


def _integer(x: Any) -> int:
    try:
        number = int(x)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != x:
        raise ValueError(f"weight {x!r}; allowed: integers, in whatever dtype.\n  Divide by the scale and round first.")
    return number
