"""Steps of torchmx's quantisation that are public there."""

from __future__ import annotations

import torch
from torch import Tensor

from .mx_tensor import dequantize_mx, quantize_mx

__all__ = ["dequantize_mx", "quantize_mx", "round_to_even"]


def round_to_even(mantissa: Tensor, shift: Tensor | int) -> Tensor:
    """``mantissa / 2**shift`` rounded to the nearest integer, ties to even; integer tensors, shifts of 0 or more."""
    amount = torch.as_tensor(shift, dtype=mantissa.dtype, device=mantissa.device)
    whole = mantissa >> amount
    twice = (mantissa - (whole << amount)) << 1
    unit = torch.ones_like(mantissa) << amount
    up = (twice > unit) | ((twice == unit) & (whole & 1 == 1))
    return whole + up.to(mantissa.dtype)
