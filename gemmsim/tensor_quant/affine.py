"""Integer quantisation of a range with a zero point."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_device
from gemmsim.ops.forward_mode import applied

from . import onnx_symbolic as onnx
from .arguments import as_amax, prepared
from .checks import common_shape
from .errors import ExportError, message
from .gradients import fit
from .grids import integer_name
from .operators import affine_op

__all__ = ["FakeAffine", "fake_affine_tensor_quant"]


class FakeAffine(torch.autograd.Function):
    """Quantise and dequantise a range; the gradient passes inside it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(inputs: Tensor, min_range: Tensor, max_range: Tensor, num_bits: int) -> Tensor:
        if torch.onnx.is_in_onnx_export() and not torch.compiler.is_exporting():  # symbolic has no values at hand
            _check_zero(min_range, max_range)
        return affine_op(inputs, min_range, max_range, num_bits)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the mask is made from."""
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient inside the range."""
        x, low, high = ctx.saved_tensors
        return fit(grad, (x >= low) & (x <= high)), None, None, None

    @staticmethod
    def symbolic(g: Any, inputs: Any, min_range: Any, max_range: Any, num_bits: int = 8) -> Any:
        """QuantizeLinear and DequantizeLinear with a zero point."""
        return onnx.export_affine(g, inputs, min_range, max_range, num_bits)


def _check_zero(low: Tensor, high: Tensor) -> None:
    """``ExportError`` for ranges without zero, whose zero point is none of the 256 integers."""
    if not bool(((low <= 0) & (high >= 0)).all()):
        asked = "ONNX export of an affine range without zero"
        allowed = "min_range <= 0 <= max_range: zero points of QuantizeLinear have 8 bits"
        raise ExportError(message(asked, allowed, "Widen the range to zero, or export with dynamo=True."))


@takes_arrays
def fake_affine_tensor_quant(
    inputs: Tensor, min_range: Tensor | float, max_range: Tensor | float, num_bits: int = 8
) -> Tensor:
    """Round ``inputs`` to 2^num_bits evenly spaced values from about ``min_range`` to about ``max_range``, including
    zero.

    ``step = (max - min) / (2^b - 1)``, ``zero = rint(min / step) + 2^(b-1)``, ``(clamp(rint(x / step) - zero,
    -2^(b-1), 2^(b-1) - 1) + zero) * step`` in float32. Each step is rounded once, ties to even; the result has the
    dtype of ``inputs``. Ranges are numbers, or tensors that broadcast against ``inputs``.

    NaN stays NaN; infinities are clamped. The gradient passes where min_range <= x <= max_range.
    Source: ModelOpt up to 0.33, ``fake_affine_tensor_quant``; bit for bit.

    Raises:
        AmaxError (ValueError): unless min_range < max_range, both finite.
        AmaxShapeError, BitsError, DTypeError, DeviceError: as ``fake_tensor_quant``.

    Example:
        >>> gs.tensor_quant.fake_affine_tensor_quant(torch.tensor([-5.0, 0.3, 2.0]), -1.0, 2.0, num_bits=2)
        tensor([-1.,  0.,  2.])
    """
    owner = "fake_affine_tensor_quant"
    integer_name(owner, num_bits, True, False)
    x, _, _ = prepared(owner, inputs, None)
    low, high = as_amax(min_range, x), as_amax(max_range, x)
    check_device(owner, x, low, high, "inputs min_range max_range")
    shape = common_shape(owner, x, low, high)
    result: Tensor = applied(
        "fake_affine_tensor_quant", FakeAffine, x if shape == x.shape else x.expand(shape), low, high, num_bits
    )
    return result
