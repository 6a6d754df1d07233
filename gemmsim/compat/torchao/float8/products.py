"""Products of tensors that are scaled and cast to float8: as torchao emulates them, and as Hopper's kernels add.

Matrices are a (M, K) and b (K, N); all values that say how are constants, so that compilers keep them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

import gemmsim as gs

from ..errors import ElementError, message, shown
from .config import ScalingGranularity
from .float8_utils import tensor_to_scale, to_fp8_saturated

__all__ = [
    "CastOperand",
    "Operand",
    "Plan",
    "autocast_dtype",
    "cast_operand",
    "check_hardware",
    "decoded_product",
    "hopper_product",
    "planned_product",
]

#: An operand's float8 dtype, whether rows along the sum have scales of their own, whether these are powers of two.
Operand = tuple[torch.dtype, bool, bool]
#: Both operands (None: not cast), whether the product is emulated in float32, whether it accumulates fast.
Plan = tuple[Operand | None, Operand | None, bool, bool]

_NAMES = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_HALVES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class CastOperand(NamedTuple):
    """Elements in float8 and what they were multiplied with: one number, (M, 1) of rows or (1, N) of columns."""

    data: Tensor
    scale: Tensor

    def decoded(self) -> Tensor:
        """Elements over scales, float32."""
        return self.data.float() / self.scale


def cast_operand(x: Tensor, operand: Operand, dim: int) -> CastOperand:
    """A matrix under the scales of ``operand``, for a sum along ``dim``; the product with a scale is rounded to
    float32, and that to float8."""
    dtype, by_rows, power = operand
    scale = tensor_to_scale(
        x,
        dtype,
        scaling_granularity=ScalingGranularity.AXISWISE if by_rows else ScalingGranularity.TENSORWISE,
        axiswise_dim=dim if by_rows else None,
        round_scales_to_power_of_2=power,
    )
    return CastOperand(to_fp8_saturated(x.to(torch.float32) * scale, dtype), scale)


def planned_product(a: Tensor, b: Tensor, plan: Plan) -> Tensor:
    """``a @ b`` in the dtype of ``a``, of operands cast as ``plan`` says."""
    left, right, emulated, fast = plan
    if left is None or right is None:
        return high_precision_product(a, b, emulated)
    x, y = cast_operand(a, left, -1), cast_operand(b, right, -2)
    return decoded_product(x, y, a.dtype) if emulated else hopper_product(x, y, a.dtype, fast)


def decoded_product(a: CastOperand, b: CastOperand, dtype: torch.dtype) -> Tensor:
    """PyTorch's own float32 product of the decoded operands, converted to ``dtype``."""
    kind = a.data.device.type
    left, right = a.decoded(), b.decoded()
    with torch._C.DisableTorchFunction():
        if autocast_dtype(kind) is None:
            return _rounded(torch.mm(left, right), dtype)
        with torch.autocast(kind, enabled=False):
            return _rounded(torch.mm(left, right), dtype)


def high_precision_product(a: Tensor, b: Tensor, emulated: bool) -> Tensor:
    """PyTorch's own product, under autocast in its dtype; not emulated, of bfloat16 and float16 that of Hopper's
    instruction."""
    dtype = autocast_dtype(a.device.type)
    a, b = (a, b) if dtype is None else (a.to(dtype), b.to(dtype))
    if not emulated and a.dtype == b.dtype and a.dtype in _HALVES:
        name = _HALVES[a.dtype]
        return gs.qmatmul(a, b, f"{name} : hw(hopper, wgmma, {name})", out_dtype=a.dtype)
    with torch._C.DisableTorchFunction():
        return torch.mm(a, b)


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """What autocast converts to on a device; None where it is off."""
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return None


def hopper_product(a: CastOperand, b: CastOperand, dtype: torch.dtype, fast: bool) -> Tensor:
    """The product with the sums of Hopper's instructions, whose operands are float8 and whose scales come after.

    One scale for each operand: sums times the product of both inverse scales, one rounding to float32, then to
    ``dtype``. Scales of rows: sums times the columns' inverse scales, then the rows', in float32, rounded to bfloat16.
    Those without fast accumulation: sums rounded to bfloat16, times the product of both inverse scales, rounded to
    bfloat16 again. Both are then converted to ``dtype``.
    """
    spec = _register(a.data.dtype, b.data.dtype, fast)
    sums = gs.qmatmul(a.data.float(), b.data.float(), spec, out_dtype=torch.float32)
    down_a, down_b = a.scale.reciprocal(), b.scale.reciprocal()
    if a.scale.dim() == b.scale.dim() == 0:
        return _rounded(_scaled(sums, down_a * down_b), dtype)
    if fast:
        return _rounded(sums * down_b * down_a, torch.bfloat16).to(dtype)
    return _rounded(_rounded(sums, torch.bfloat16) * (down_a * down_b), torch.bfloat16).to(dtype)


def _scaled(sums: Tensor, alpha: Tensor) -> Tensor:
    """``sums * alpha``, exact in float64, rounded once to float32; a product of exactly zero is +0."""
    exact = sums.double() * alpha.double()
    return torch.where(exact == 0, 0.0, exact).float()


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """float32 numbers in ``dtype``; an operator of its own, which compilers do not fuse with other conversions."""
    return (gs.quantize(x, _HALVES[dtype]) if dtype in _HALVES else x).to(dtype)


def _register(left: torch.dtype, right: torch.dtype, fast: bool) -> str:
    one, two = _NAMES[left], _NAMES[right]
    instruction = f"hw(hopper, wgmma, {one})" if one == two else f"hw(hopper, wgmma, {one}, {two})"
    return f"{one} * {two} : {instruction if fast else f'promote({instruction}, 128)'}"


def check_hardware(plan: Plan) -> None:
    """``ElementError`` for a product of dtypes that Hopper has not, unless it is emulated in float32."""
    for operand in plan[:2]:
        if operand is not None and not plan[2] and operand[0] not in _NAMES:
            asked = f"Float8Linear: operands in {shown(operand[0])} as Hopper multiplies"
            raise ElementError(message(asked, "float8_e4m3fn, float8_e5m2", "Give the config emulate=True."))
