"""Steps of torchao's RCEIL scales (cuBLAS's rule for blocks with e8m0 scales), as its main branch has them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["_e8m0_scale_to_reciprocal_fp32", "_f32_to_e8m0_rceil", "_to_mx_rceil"]


def _f32_to_e8m0_rceil(x: Tensor) -> Tensor:
    """e8m0 codes (uint8) of non-negative float32 numbers, rounded up to a power of two.

    From 0 to 2^-127 code 0, beyond 2^127 code 255, which is NaN; infinity and NaN are 255 too. Signs are left out.

    Raises:
        AssertionError: for other dtypes.
    """
    if x.dtype != torch.float32:
        raise AssertionError(f"dtype {x.dtype}; allowed: torch.float32")
    bits = x.contiguous().view(torch.int32)
    exponent, fraction = (bits >> 23) & 255, bits & 0x7FFFFF
    # 2^-127 is the subnormal number with the highest bit of the fraction
    up = torch.where(exponent == 0, fraction > 0x400000, fraction != 0)
    return torch.where(exponent == 255, 255, exponent + up).to(torch.uint8)


def _e8m0_scale_to_reciprocal_fp32(scale_e8m0: Tensor) -> Tensor:
    """2^(127 - code) in float32 of e8m0 codes (float8_e8m0fnu or uint8): 2^127 for 0, 2^-127 for 254, NaN for 255."""
    codes = scale_e8m0.contiguous().view(torch.uint8).to(torch.int32)
    # made of bits, since 2^-127 is lost where subnormal numbers are flushed
    bits = torch.where(codes == 254, 0x400000, (254 - codes) << 23)
    return torch.where(codes == 255, 0x7FC00000, bits).view(torch.float32)


def _to_mx_rceil(data_hp: Tensor, max_abs: Tensor, max_pos: float) -> tuple[Tensor, Tensor]:
    """(scale codes, scaled data) of blocks along the last dimension under the RCEIL rule.

    Args:
        data_hp: blocks.
        max_abs: their largest magnitudes, of a shape that broadcasts to ``data_hp``.
        max_pos: the largest element.

    Codes are uint8, data float32: times the scale's reciprocal, clamped to ``max_pos``, not yet rounded to elements.
    NaN stays; data of blocks with code 255 are NaN.
    """
    codes = _f32_to_e8m0_rceil(max_abs.to(torch.float32) * (1.0 / max_pos))
    scaled = data_hp.to(torch.float32) * _e8m0_scale_to_reciprocal_fp32(codes)
    return codes, scaled.clamp(-max_pos, max_pos)
