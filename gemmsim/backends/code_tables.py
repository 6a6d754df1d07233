"""Tables of codes and values: which code a number has and back, looked up by bits where a table is small enough."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.formats import CodebookFormat, Format, parse_scalar

from .code_layout import parts_of_codes, parts_of_values, to_codes, to_values
from .codebook_codes import listed_codes, listed_values
from .dtypes import fits

__all__ = ["codes_of", "table_codes", "values_of_codes"]


@lru_cache(maxsize=64)
def _codes_of_bfloat16(fmt: str, device: torch.device) -> Tensor:
    """Code of each bfloat16 number, by its bits; -1 for those without one."""
    bits = torch.arange(1 << 16, device=device).to(torch.int16)
    codes, good = to_codes(parse_scalar(fmt), parts_of_values(bits.view(torch.bfloat16)))
    return torch.where(good, codes, -1).to(torch.int32)


@lru_cache(maxsize=64)
def values_of_codes(fmt: str, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Value of each code, and which are in use."""
    meaning = parse_scalar(fmt)
    if isinstance(meaning, CodebookFormat):
        return listed_values(meaning, dtype, device)
    parts, used = parts_of_codes(meaning, torch.arange(1 << meaning.bits, device=device))
    return to_values(parts, dtype), used


def codes_of(fmt: str, meaning: Format, x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of the elements of ``x``, and which have one. What fits bfloat16 is looked up, read from the bits."""
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


def table_codes(x: Tensor, fmt: Format) -> Tensor:
    """int16 codes of the elements of ``x``, as a cast to ``fmt`` (up to 8 bits) gives them: NaN has one bit pattern.

    2**bits for a NaN that has no code.
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
