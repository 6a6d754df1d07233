"""Tables from values to codes and back. They are indexed by bits where the table is small enough."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.formats import CodebookFormat, Format, parse_scalar

from .code_layout import parts_of_codes, parts_of_values, to_codes, to_values
from .codebook import points_on
from .dtypes import fits

__all__ = ["codes_of", "codes_of_elements", "listed_codes", "listed_values", "table_codes", "values_of_codes"]


@lru_cache(maxsize=64)
def _codes_of_bfloat16(fmt: str, device: torch.device) -> Tensor:
    """Return the code of each bfloat16 number, indexed by its bits; -1 for numbers without one."""
    bits = torch.arange(1 << 16, device=device).to(torch.int16)
    codes, good = to_codes(parse_scalar(fmt), parts_of_values(bits.view(torch.bfloat16)))
    return torch.where(good, codes, -1).to(torch.int32)


@lru_cache(maxsize=64)
def values_of_codes(fmt: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the value of each code, and a mask of the codes that are in use."""
    meaning = parse_scalar(fmt)
    if isinstance(meaning, CodebookFormat):
        return listed_values(meaning, dtype, device)
    parts, used = parts_of_codes(meaning, torch.arange(1 << meaning.bits, device=device))
    return to_values(parts, dtype), used


def codes_of(fmt: str, meaning: Format, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes of the elements of ``x``, and a mask of the elements that have one.

    Elements of a format that fits bfloat16 are looked up by their bits.
    """
    if isinstance(meaning, CodebookFormat):
        return listed_codes(meaning, x)
    if x.dtype is torch.float64 or not fits(meaning, torch.bfloat16):
        return to_codes(meaning, parts_of_values(x))
    if x.dtype is torch.bfloat16:
        index, exact = x.view(torch.int16).to(torch.int32) & 0xFFFF, None
    else:
        bits = x.to(torch.float32).view(torch.int32)
        index, exact = (bits >> 16) & 0xFFFF, ((bits & 0xFFFF) == 0) | x.isnan()
        index = torch.where(x.isnan(), 0x7FC0, index)
    codes = _codes_of_bfloat16(fmt, x.device)[index]
    return codes, codes >= 0 if exact is None else (codes >= 0) & exact


@lru_cache(maxsize=64)
def _bytes_of_bfloat16(fmt: str, device: torch.device) -> Tensor:
    return _codes_of_bfloat16(fmt, device).to(torch.uint8)


def codes_of_elements(x: Tensor, fmt: Format) -> Tensor:
    """Return the codes of ``x``, numbers of a format of up to 8 bits, as uint8; the code of other numbers means
    nothing.
    """
    index = x.to(torch.bfloat16).view(torch.int16).to(torch.int32) & 0xFFFF
    return _bytes_of_bfloat16(str(fmt), x.device)[index]


def table_codes(x: Tensor, fmt: Format) -> Tensor:
    """Return int16 codes of the elements of ``x``, which a cast to ``fmt`` (up to 8 bits) must have given.

    NaN must have one bit pattern. A NaN that has no code gets 2**bits.
    """
    if x.dtype is torch.float32 and not isinstance(fmt, CodebookFormat) and fits(fmt, torch.bfloat16):
        upper = (x.reshape(-1).view(torch.int32) >> 16).bitwise_and_(0xFFFF)
        return _table_codes_of_bfloat16(str(fmt), x.device).index_select(0, upper).view(x.shape)
    codes, good = codes_of(str(fmt), fmt, x.reshape(-1))
    return torch.where(good, codes, 1 << fmt.bits).to(torch.int16).view(x.shape)


@lru_cache(maxsize=64)
def _table_codes_of_bfloat16(fmt: str, device: torch.device) -> Tensor:
    codes = _codes_of_bfloat16(fmt, device)
    return torch.where(codes >= 0, codes, 1 << parse_scalar(fmt).bits).to(torch.int16)


def listed_codes(fmt: CodebookFormat, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes of the elements of ``x``, and a mask of the elements that have one; -0 has the code of 0."""
    points = points_on(fmt, x.device)
    wide = x.to(torch.float64).contiguous()
    place = torch.bucketize(wide, points).clamp_(max=len(fmt.points) - 1)
    good = points[place] == wide
    code = (place + fmt.first_code) % (1 << fmt.bits)
    if fmt.nan_code is not None:
        code, good = torch.where(wide.isnan(), fmt.nan_code, code), good | wide.isnan()
    return torch.where(good, code, 0), good


def listed_values(fmt: CodebookFormat, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the value of each code, and a mask of the codes that are in use."""
    used = set(fmt.codes())
    values = [fmt.decode(code) if code in used else 0.0 for code in range(1 << fmt.bits)]
    flags = torch.tensor([code in used for code in range(1 << fmt.bits)], device=device)
    return torch.tensor(values, dtype=torch.float64, device=device).to(dtype), flags
