"""``torchao.float8.float8_ops``: the product of float8 tensors and their scales."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import StorageError, message, shown
from .products import CastOperand, hopper_product

__all__ = ["addmm_float8_unwrapped"]


def addmm_float8_unwrapped(
    a_data: Tensor,
    a_scale: Tensor,
    b_data: Tensor,
    b_scale: Tensor,
    output_dtype: torch.dtype,
    output_scale: None = None,
    bias: Tensor | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """``a_data @ b_data`` with the sums of Hopper's instructions, divided by the scales of the operands.

    Scales are one number, or (M, 1) for rows and (1, N) for columns; the steps are those of a ``Float8Linear``. A bias
    is added last, in ``output_dtype``. There is no gradient.

    Raises:
        StorageError: for results in eight bits, and with ``output_scale``, which they need; a DTypeError and an
            AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8.float8_ops import addmm_float8_unwrapped
        >>> a, scale = torch.tensor([[448.0, 32.0]]).to(torch.float8_e4m3fn), torch.tensor(64.0)
        >>> addmm_float8_unwrapped(a, scale, a.t(), scale, torch.float32)
        tensor([[49.2500]])
    """
    if output_scale is not None or output_dtype.itemsize == 1:
        asked = f"addmm_float8_unwrapped: output_dtype={output_dtype}, output_scale={shown(output_scale)}"
        do = "gemmsim.scaled_mm has scale_result= for results in float8."
        raise StorageError(message(asked, "float32, bfloat16, float16 and no output_scale", do))
    with torch.no_grad():
        a, b = CastOperand(a_data, a_scale), CastOperand(b_data, b_scale)
        out = hopper_product(a, b, output_dtype, use_fast_accum)
        return out if bias is None else out + bias.to(output_dtype)
