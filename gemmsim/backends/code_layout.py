"""Converts between values and codes of a format, element by element in integers, on any device.

A finite value is ``significand * 2**exponent``. For each kind of format one function computes the code's magnitude from
these, and one computes them from the magnitude. All formats share the handling of signs, NaN and infinities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim.formats import (
    Binary8Format,
    CodebookFormat,
    FixedFormat,
    FloatFormat,
    Format,
    OwnExponentFormat,
    Specials,
    SupernormalFormat,
)

__all__ = ["Parts", "code_dtype", "parts_of_codes", "parts_of_values", "to_codes", "to_values", "wrapped"]

#: For each float dtype: the integer dtype of its size, its trailing bits and its exponent's bias.
_STORAGE = {
    torch.float16: (torch.int16, 10, 15),
    torch.bfloat16: (torch.int16, 7, 127),
    torch.float32: (torch.int32, 23, 127),
    torch.float64: (torch.int64, 52, 1023),
}
_FAR = 62  # largest shift: a value that would need more is outside every format


class Parts(NamedTuple):
    """Numbers as tensors: sign, ``significand * 2**exponent`` where finite, and flags for infinities and NaN."""

    negative: Tensor
    significand: Tensor
    exponent: Tensor
    infinite: Tensor
    nan: Tensor


def code_dtype(fmt: Format) -> torch.dtype:
    """Return the narrowest dtype that stores every code as a number and in which PyTorch computes.

    It is uint8 or a signed dtype, because PyTorch does not compute with unsigned integers beyond 8 bits. Codes of 64
    bits are int64 in two's complement.
    """
    if fmt.bits <= 8:
        return torch.uint8
    return torch.int16 if fmt.bits < 16 else torch.int32 if fmt.bits < 32 else torch.int64


def wrapped(code: int) -> int:
    """Return ``code`` as int64 stores it."""
    return code - (1 << 64) if code >= 1 << 63 else code


def parts_of_values(x: Tensor) -> Parts:
    """Return the parts of a float tensor's elements.

    They are read from the bits, so that no mode of the processor matters.
    """
    integers, trailing, bias = _STORAGE[x.dtype]
    bits = x.view(integers).to(torch.int64)
    width = x.element_size() * 8
    field = (bits >> trailing) & ((1 << (width - 1 - trailing)) - 1)
    low = bits & ((1 << trailing) - 1)
    special = field == (1 << (width - 1 - trailing)) - 1
    significand = torch.where(field == 0, low, low | 1 << trailing)
    exponent = field.clamp(min=1) - (bias + trailing)
    return Parts(bits < 0, significand, exponent, special & (low == 0), special & (low != 0))


def to_values(parts: Parts, dtype: torch.dtype) -> Tensor:
    """Return the numbers in ``dtype``, which must be able to represent them."""
    half = parts.exponent >> 1
    value = parts.significand.to(torch.float64) * _power(half) * _power(parts.exponent - half)
    value = torch.where(parts.infinite, torch.inf, value)
    value = torch.where(parts.negative, -value, value)
    return torch.where(parts.nan, torch.nan, value).to(dtype)


def _power(exponent: Tensor) -> Tensor:
    """Return 2 ** exponent in float64, for normal powers."""
    return ((exponent + 1023) << 52).view(torch.float64)


def _length(significand: Tensor) -> Tensor:
    """Return the bit length of each integer below 2**53; 0 for 0."""
    return torch.frexp(significand.to(torch.float64))[1].to(torch.int64)


def _shifted(significand: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``significand * 2**by`` in integers, and whether no bit was lost below."""
    left, right = by.clamp(0, _FAR), (-by).clamp(0, _FAR)
    whole = (significand & ((1 << right) - 1)) == 0
    return (significand >> right) << left, whole


# Codes of values


def to_codes(fmt: Format, parts: Parts) -> tuple[Tensor, Tensor]:
    """Return the int64 codes of ``fmt``, and a mask of the elements that have one; the others get the code 0."""
    if isinstance(fmt, FixedFormat):
        code, good = _fixed_codes(fmt, parts)
        return torch.where(good, code, 0), good
    assert not isinstance(fmt, (OwnExponentFormat, CodebookFormat))  # neither has codes that are computed here
    kind: dict[type, Any] = {
        FloatFormat: _float_magnitudes,
        SupernormalFormat: _supernormal_magnitudes,
        Binary8Format: _binary8_magnitudes,
    }
    top = parts.exponent + _length(parts.significand) - 1
    magnitude, good = kind[type(fmt)](fmt, parts, top)
    is_zero = parts.significand == 0
    magnitude = torch.where(is_zero, 0, magnitude)
    good = torch.where(is_zero, fmt.has_zero, good & (magnitude >= 0) & (magnitude <= _largest(fmt)))
    infinity, nan = _infinity(fmt), _nan(fmt)
    magnitude = torch.where(parts.infinite, 0 if infinity is None else infinity, magnitude)
    good = torch.where(parts.infinite, infinity is not None, good)
    negative = parts.negative & (True if fmt.has_negative_zero else magnitude != 0)
    if not fmt.signed:
        good = good & ~negative
        negative = torch.zeros_like(negative)
    code = torch.where(negative, magnitude | wrapped(1 << (fmt.bits - 1)), magnitude)
    code = torch.where(parts.nan, wrapped(nan or 0), code)
    good = torch.where(parts.nan, nan is not None, good)
    return torch.where(good, code, 0), good


def _largest(fmt: FloatFormat | SupernormalFormat | Binary8Format) -> int:
    """Return the magnitude of the largest finite value."""
    return fmt.max_code if isinstance(fmt, FloatFormat) else fmt.max_magnitude


def _infinity(fmt: FloatFormat | SupernormalFormat | Binary8Format) -> int | None:
    """Return the magnitude of infinity, None where there is none."""
    return fmt.encode(float("inf")) if fmt.has_inf else None


def _nan(fmt: FloatFormat | SupernormalFormat | Binary8Format) -> int | None:
    """Return the code of NaN that ``encode`` gives, None where there is none."""
    return fmt.encode(float("nan")) if fmt.has_nan else None


def _fixed_codes(fmt: FixedFormat, parts: Parts) -> tuple[Tensor, Tensor]:
    by = parts.exponent + fmt.frac
    magnitude, whole = _shifted(parts.significand, by)
    fits = parts.exponent + fmt.frac + _length(parts.significand) <= 54
    k = torch.where(parts.negative, -magnitude, magnitude)
    good = whole & fits & (k <= fmt.max_significand) & (k >= fmt.min_significand)
    good = (good | (parts.significand == 0)) & ~parts.infinite & ~parts.nan
    return k & ((1 << fmt.bits) - 1), good


def _float_magnitudes(fmt: FloatFormat, parts: Parts, top: Tensor) -> tuple[Tensor, Tensor]:
    binade = top.clamp(min=fmt.emin)
    significand, whole = _shifted(parts.significand, parts.exponent + fmt.trailing_bits - binade)
    good = whole & (top <= fmt.emax)
    if not fmt.has_subnormals:
        good = good & (top >= fmt.emin)
    steps = (binade - fmt.emin).clamp(max=fmt.emax - fmt.emin + 1) << fmt.trailing_bits
    return significand + steps - (0 if fmt.has_zero else 1), good


def _supernormal_magnitudes(fmt: SupernormalFormat, parts: Parts, top: Tensor) -> tuple[Tensor, Tensor]:
    t = fmt.trailing_bits
    low, high = fmt.lower << t, ((1 << fmt.exponent_bits) - fmt.upper) << t
    significand, whole = _shifted(parts.significand, parts.exponent + t - top)
    inside = (top >= fmt.first_binade) & (top <= fmt.last_binade)
    steps = (top.clamp(fmt.first_binade, fmt.last_binade) - fmt.first_binade) << t
    middle = low + steps + significand - (1 << t)
    below, above = top - fmt.first_binade + low, top - fmt.last_binade - 1 + high
    powers = torch.where(top < fmt.first_binade, below, above)
    is_power = (parts.significand & (parts.significand - 1)) == 0
    is_power = is_power & (powers > 0) & (top >= fmt.lowest_exponent)
    return torch.where(inside, middle, powers), torch.where(inside, whole, is_power)


def _binary8_magnitudes(fmt: Binary8Format, parts: Parts, top: Tensor) -> tuple[Tensor, Tensor]:
    t = fmt.trailing_bits
    first = -fmt.bias if fmt.skips_first else 1 - fmt.bias
    binade = top.clamp(min=first)
    significand, whole = _shifted(parts.significand, parts.exponent + t - binade)
    magnitude = significand + ((binade - first).clamp(max=256) << t)
    if not fmt.skips_first:
        return magnitude, whole
    return magnitude - (1 << t), whole & (top >= first) & (magnitude != 1 << t)


# Values of codes


def parts_of_codes(fmt: Format, codes: Tensor) -> tuple[Parts, Tensor]:
    """Return the parts of the values of int64 ``codes``, and a mask of the codes that are in use."""
    if isinstance(fmt, FixedFormat):
        return _fixed_parts(fmt, codes)
    assert not isinstance(fmt, (OwnExponentFormat, CodebookFormat))  # neither has codes that are computed here
    sign = 1 << (fmt.bits - 1)
    no = torch.zeros_like(codes, dtype=torch.bool)
    negative = (codes & wrapped(sign)) != 0 if fmt.signed else no
    magnitude = codes & (sign - 1) if fmt.signed else codes
    kind: dict[type, Any] = {
        FloatFormat: _float_parts,
        SupernormalFormat: _supernormal_parts,
        Binary8Format: _binary8_parts,
    }
    significand, exponent = kind[type(fmt)](fmt, magnitude)
    finite = magnitude <= _largest(fmt)
    infinity = _infinity(fmt)
    infinite = magnitude == infinity if infinity is not None else no
    nan = _nans(fmt, codes, magnitude)
    used = (magnitude == 0) | (significand != 0) | ~finite
    if isinstance(fmt, FloatFormat) and not fmt.subnormals:
        used = used & ((magnitude == 0) | (magnitude >= 1 << fmt.trailing_bits))
    used = (used & finite) | infinite | nan
    significand = torch.where(finite & ~nan, significand, 0)
    return Parts(negative, significand, torch.where(finite, exponent, 0), infinite & ~nan, nan), used


def _nans(fmt: FloatFormat | SupernormalFormat | Binary8Format, codes: Tensor, magnitude: Tensor) -> Tensor:
    """Return a mask of the codes that are NaN."""
    nan = _nan(fmt)
    if nan is None:
        return torch.zeros_like(codes, dtype=torch.bool)
    if not isinstance(fmt, FloatFormat):
        return codes == wrapped(nan)
    at_sign = 1 << (fmt.bits - 1)
    found = (
        codes == wrapped(at_sign)
        if fmt.signed and not fmt.has_negative_zero
        else torch.zeros_like(codes, dtype=torch.bool)
    )
    last = (1 << (fmt.bits - int(fmt.signed))) - 1
    if fmt.specials is Specials.IEEE:
        infinity = _infinity(fmt)
        assert infinity is not None
        return found | (magnitude > infinity)
    if nan != at_sign or not fmt.signed:
        found = found | (magnitude == last)
    return found


def _fixed_parts(fmt: FixedFormat, codes: Tensor) -> tuple[Parts, Tensor]:
    k = codes
    if fmt.signed:
        k = torch.where(codes >= 1 << (fmt.bits - 1), codes - (1 << fmt.bits), codes)
    no = torch.zeros_like(codes, dtype=torch.bool)
    used = (k >= fmt.min_significand) & (k <= fmt.max_significand)
    return Parts(k < 0, k.abs(), torch.full_like(codes, -fmt.frac), no, no), used


def _float_parts(fmt: FloatFormat, magnitude: Tensor) -> tuple[Tensor, Tensor]:
    if fmt.specials is Specials.SCALE:
        return torch.ones_like(magnitude), fmt.emin + magnitude
    field, low = magnitude >> fmt.trailing_bits, magnitude & ((1 << fmt.trailing_bits) - 1)
    significand = torch.where(field == 0, low, low | 1 << fmt.trailing_bits)
    return significand, fmt.quantum_exponent + field.clamp(min=1) - 1


def _supernormal_parts(fmt: SupernormalFormat, magnitude: Tensor) -> tuple[Tensor, Tensor]:
    t = fmt.trailing_bits
    low, high = fmt.lower << t, ((1 << fmt.exponent_bits) - fmt.upper) << t
    inside = (magnitude >= low) & (magnitude < high)
    within = torch.where(inside, magnitude - low, 0)
    below, above = fmt.first_binade - low + magnitude, fmt.last_binade + 1 + magnitude - high
    middle = fmt.first_binade + (within >> t) - t
    exponent = torch.where(inside, middle, torch.where(magnitude < low, below, above))
    significand = torch.where(inside, (1 << t) + (within & ((1 << t) - 1)), 1)
    unused = (magnitude == 0) | ((magnitude < low) & (exponent < fmt.lowest_exponent))
    return torch.where(unused, 0, significand), exponent


def _binary8_parts(fmt: Binary8Format, magnitude: Tensor) -> tuple[Tensor, Tensor]:
    t = fmt.trailing_bits
    field, low = magnitude >> t, magnitude & ((1 << t) - 1)
    exponent = field - (fmt.bias + t)
    if fmt.skips_first:
        return torch.where(magnitude == 0, 0, low | 1 << t), exponent
    return torch.where(field == 0, low, low | 1 << t), torch.where(field == 0, exponent + 1, exponent)
