"""Products of operands in block formats by cuBLAS, which reads codes and scales as they are stored (Blackwell)."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.lowering.refusal import Refusal

from ..scale_layout import blocked
from .types import NativeType

__all__ = ["block_scaled_mm", "refuses_shape"]

#: The library requires that K is a multiple of the first number, and N of the second.
_TERMS, _COLUMNS = 32, 16


def refuses_shape(native: NativeType, rows: int, n: int, k: int) -> Refusal | None:
    """Return why the library does not accept a product of this size, or ``None``."""
    if rows == 0 or k == 0:
        return Refusal("there is nothing to multiply")
    if k % _TERMS or n % _COLUMNS:
        return Refusal(
            f"native type {native.name} takes multiples of {_COLUMNS} as N and of {_TERMS} as K, not {(n, k)}"
        )
    return None


def block_scaled_mm(
    a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, native: NativeType, out_dtype: torch.dtype
) -> tuple[Tensor, str]:
    """Return the product in ``out_dtype``, and the name of the call that computed it.

    The operands are lines ``a`` (M, K) and ``b`` (N, K), uint8 with one code per byte, with scale codes (M, blocks) and
    (N, blocks).
    """
    left, right = (_stored(x, dtype) for x, dtype in ((a, native.a), (b, native.b)))
    kind = torch.float8_e4m3fn if native.name == "nvfp4" else torch.float8_e8m0fnu
    one, two = (blocked(x).view(kind) for x in (scale_a, scale_b))
    product: Tensor = torch._scaled_mm(left, right.t(), scale_a=one, scale_b=two, out_dtype=out_dtype)
    return product, "torch._scaled_mm with scales of blocks"


def _stored(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return codes in the library's dtype. Codes of 4 bits are packed two per byte, the first in the low half."""
    if dtype == torch.uint8:
        return (codes[:, ::2] & 15 | codes[:, 1::2] << 4).contiguous().view(torch.float4_e2m1fn_x2)
    return codes.contiguous().view(dtype)
