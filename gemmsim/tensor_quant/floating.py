"""Scaled float elements: E4M3, and by the same call E5M2, E3M2, E2M3, E2M1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_tensor
from gemmsim.ops.forward_mode import applied

from . import onnx_symbolic as onnx
from .arguments import both_vintages, check_nonfinite, prepared, write_out
from .gradients import clip_mask, fit
from .grids import element_name
from .operators import fake_op, fake_out_op

__all__ = ["ScaledElement", "fp4_cast_ste", "fp8_eager", "scaled_e4m3", "scaled_e4m3_abstract", "scaled_e4m3_impl"]


class ScaledElement(torch.autograd.Function):
    """Quantise and dequantise; the gradient passes where |x - bias| <= amax, everywhere without amax."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        inputs: Tensor,
        amax: Tensor | None,
        bias: Tensor | None,
        E: int,
        M: int,
        trt_high_precision_dtype: str | None,
        pass_through_bwd: bool,
        propagate: bool,
    ) -> Tensor:
        return fake_op(inputs, amax, _name(E, M), bias, propagate)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the mask is made from."""
        x, amax, bias = inputs[:3]
        ctx.passes = inputs[6] or amax is None
        ctx.save_for_backward(*((None, None, None) if ctx.passes else (x, amax, bias)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient where the inputs were not clipped."""
        x, amax, bias = ctx.saved_tensors
        return (grad if ctx.passes else fit(grad, clip_mask(x, amax, bias)), *([None] * 7))

    @staticmethod
    def symbolic(
        g: Any, inputs: Any, amax: Any = None, bias: Any = None, E: int = 4, M: int = 3, dtype: Any = None, *rest: Any
    ) -> Any:
        """TRT_FP8QuantizeLinear and TRT_FP8DequantizeLinear."""
        onnx.check_no_bias(bias)
        return onnx.export_fp8(g, inputs, amax, E, M, dtype)


class _Fp4Cast(torch.autograd.Function):
    """Rounding to e2m1; the gradient passes where |x| <= 6."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return fake_op(x, None, "e2m1")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the mask."""
        ctx.save_for_backward(inputs[0].abs() <= 6)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The gradient inside the range."""
        return fit(grad, ctx.saved_tensors[0])


def _name(E: int, M: int) -> str:
    return element_name("scaled_e4m3", (E, M), asked=f"Only support E=4 & M=3 for now. Got E={E}, M={M}")


@takes_arrays
@both_vintages("E", "M")
def scaled_e4m3(
    inputs: Tensor,
    amax: Tensor | float | None,
    bias: Tensor | float | None = None,
    E: int = 4,
    M: int = 3,
    trt_high_precision_dtype: str | None = None,
    pass_through_bwd: bool = False,
    *,
    nonfinite_amax: str = "raise",
    out: Tensor | None = None,
) -> Tensor:
    """Round ``inputs`` to E4M3 with the scale ``448 * (1 / amax)`` and scale back, in the dtype of ``inputs``.

    ``e4m3((x - bias) * scale) * (1 / scale) + bias`` in float32, each step rounded once, to nearest even; float64
    inputs are rounded to float32 first. Without amax: ``e4m3(x)``.

    Args:
        inputs, amax, bias, trt_high_precision_dtype, pass_through_bwd, nonfinite_amax, out: as ``fake_tensor_quant``.
        E, M: exponent and fraction bits: (4, 3), and beyond ModelOpt (5, 2), (3, 2), (2, 3), (2, 1), (3, 0), (1, 2),
            (0, 3), with their largest value in place of 448. They may also be the third and fourth positional
            arguments.

    Overflow and infinities always saturate. NaN stays NaN. Subnormal values and the sign of zero are kept. An amax <=
    2^-24 counts as 1. The gradient passes where |x - bias| <= amax; everywhere without amax.
    Source: ModelOpt 0.40 ``fp8_eager``, the guard for amax from 0.47; element formats: OCP OFP8 rev. 1.0.

    Raises:
        ElementFormatError (NotImplementedError): for another (E, M).
        AmaxError, AmaxShapeError, DTypeError, DeviceError, OverlapError, GradError: as ``fake_tensor_quant``.

    Example:
        >>> gs.tensor_quant.scaled_e4m3(torch.tensor([0.3, -1.0, 2.0]), 2.0)
        tensor([ 0.2857, -1.0000,  2.0000])
        >>> gs.tensor_quant.scaled_e4m3(torch.tensor([0.3, 500.0]), None)  # e4m3 itself, which saturates at 448
        tensor([3.1250e-01, 4.4800e+02])
    """
    owner = "scaled_e4m3"
    name = _name(E, M)
    propagate = check_nonfinite(owner, nonfinite_amax)
    x, scale, offset = prepared(owner, inputs, amax, bias)
    if out is not None:
        write_out(owner, x, out)
        fake_out_op(x, scale, name, offset, propagate, out)
        return out
    result: Tensor = applied(
        "scaled_e4m3",
        ScaledElement,
        x,
        scale,
        offset,
        E,
        M,
        trt_high_precision_dtype,
        bool(pass_through_bwd),
        propagate,
    )
    return result


@takes_arrays
def scaled_e4m3_impl(inputs: Tensor, amax: Tensor | float | None = None) -> Tensor:
    """``scaled_e4m3`` without a gradient.

    Example:
        >>> gs.tensor_quant.scaled_e4m3_impl(torch.tensor([0.3, -1.0, 2.0], requires_grad=True), 2.0)
        tensor([ 0.2857, -1.0000,  2.0000])
    """
    with torch.no_grad():
        result: Tensor = scaled_e4m3(inputs, amax, None, 4, 3)
    return result


def scaled_e4m3_abstract(input: Tensor, amax: Tensor | float | None = None) -> Tensor:
    """Return the shape and dtype that ``scaled_e4m3_impl`` returns, without values: ``torch.empty_like(input)``.

    Raises:
        DTypeError: if the input is not a tensor.

    Example:
        >>> gs.tensor_quant.scaled_e4m3_abstract(torch.ones(2, 3, device="meta")).shape
        torch.Size([2, 3])
    """
    check_tensor("scaled_e4m3_abstract", "input", input)
    return torch.empty_like(input)


@takes_arrays
def fp8_eager(x: Tensor, amax: Tensor | float | None = None) -> Tensor:
    """``scaled_e4m3_impl`` under its later name.

    Example:
        >>> gs.tensor_quant.fp8_eager(torch.tensor([0.3, -1.0, 2.0]), 2.0)
        tensor([ 0.2857, -1.0000,  2.0000])
    """
    return scaled_e4m3_impl(x, amax)


@takes_arrays
def fp4_cast_ste(x: Tensor) -> Tensor:
    """Round each element to e2m1 (ties to even, saturating at 6); the gradient passes where |x| <= 6.

    Example:
        >>> gs.tensor_quant.fp4_cast_ste(torch.tensor([0.3, 2.5, -7.0]))
        tensor([ 0.5000,  2.0000, -6.0000])
    """
    v, _, _ = prepared("fp4_cast_ste", x, None)
    result: Tensor = applied("fp4_cast", _Fp4Cast, v)
    return result
