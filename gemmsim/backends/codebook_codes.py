"""Codes of formats that are lists of values, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.formats import CodebookFormat

from .codebook import points_on

__all__ = ["listed_codes", "listed_values"]


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
