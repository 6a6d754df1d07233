"""Integer quantisation: the integers and their scale, or quantised and dequantised at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.forward_mode import applied

from . import onnx_symbolic as onnx
from .arguments import both_vintages, check_nonfinite, prepared, required, write_out
from .gradients import clip_mask, fit
from .grids import IntegerGrid, integer_name
from .operators import fake_op, fake_out_op, integers_op

__all__ = [
    "FakeQuant",
    "Integers",
    "fake_quant_impl",
    "fake_tensor_quant",
    "int_cast_ste",
    "integers_arguments",
    "legacy_fake_tensor_quant",
    "tensor_quant",
]


class FakeQuant(torch.autograd.Function):
    """Quantise and dequantise; the gradient passes where |x - bias| <= amax."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        inputs: Tensor,
        amax: Tensor,
        bias: Tensor | None,
        num_bits: int,
        unsigned: bool,
        narrow_range: bool,
        trt_high_precision_dtype: str | None,
        pass_through_bwd: bool,
        block_size: int | None,
        axis: int | None,
        propagate: bool,
    ) -> Tensor:
        return fake_op(
            inputs, amax, integer_name("fake_tensor_quant", num_bits, unsigned, narrow_range), bias, propagate
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the mask is made from."""
        x, amax, bias = inputs[:3]
        ctx.passes = inputs[7]
        ctx.save_for_backward(*((None, None, None) if ctx.passes else (x, amax, bias)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient where the inputs were not clipped."""
        x, amax, bias = ctx.saved_tensors
        return (grad if ctx.passes else fit(grad, clip_mask(x, amax, bias)), *([None] * 10))

    @staticmethod
    def symbolic(g: Any, inputs: Any, amax: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
        """QuantizeLinear and DequantizeLinear; with ``narrow_range`` Mul, Round, Clip and Div."""
        onnx.check_no_bias(bias)
        given = _DEFAULTS | dict(zip(_DEFAULTS, args, strict=False)) | kwargs
        num_bits, dtype, block_size = given["num_bits"], given["trt_high_precision_dtype"], given["block_size"]
        if block_size is not None:
            return onnx.export_int4(g, inputs, amax, num_bits, dtype, block_size, given["axis"])
        return onnx.export_int8(g, inputs, amax, num_bits, given["unsigned"], given["narrow_range"], dtype)


#: Arguments after bias, in their order.
_DEFAULTS: dict[str, Any] = {
    "num_bits": 8, "unsigned": False, "narrow_range": True, "trt_high_precision_dtype": None,
    "pass_through_bwd": False, "block_size": None, "axis": None, "propagate": False,
}  # fmt: skip


class Integers(torch.autograd.Function):
    """The integers and their scale; the gradient of the integers passes where |x| <= amax."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        inputs: Tensor, amax: Tensor, num_bits: int, unsigned: bool, narrow_range: bool, propagate: bool
    ) -> tuple[Tensor, Tensor]:
        return integers_op(inputs, amax, integer_name("tensor_quant", num_bits, unsigned, narrow_range), propagate)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the mask is made from."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], inputs[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, unused: Any) -> tuple[Tensor | None, ...]:
        """The gradient where the inputs were not clipped."""
        x, amax = ctx.saved_tensors
        return fit(grad, clip_mask(x, amax)), None, None, None, None, None

    @staticmethod
    def symbolic(
        g: Any, inputs: Any, amax: Any, num_bits: int, unsigned: bool, narrow_range: bool, *rest: Any
    ) -> tuple[Any, Any]:
        """The integers as floats and the scale, by Mul, Round, Clip and Div."""
        return onnx.export_integers(g, inputs, amax, IntegerGrid(num_bits, unsigned, narrow_range))


class _IntCast(torch.autograd.Function):
    """Rounding and clamping to integers; the gradient passes inside the range."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, grid: str, low: float, high: float) -> Tensor:
        return fake_op(x, None, grid)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the mask."""
        x, _, low, high = inputs
        ctx.save_for_backward((x >= low) & (x <= high))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient inside the range."""
        return fit(grad, ctx.saved_tensors[0]), None, None, None


@takes_arrays
@both_vintages("num_bits", "unsigned", "narrow_range", "trt_high_precision_dtype")
def fake_tensor_quant(
    inputs: Tensor,
    amax: Tensor | float,
    bias: Tensor | float | None = None,
    num_bits: int = 8,
    unsigned: bool = False,
    narrow_range: bool = True,
    trt_high_precision_dtype: str | None = None,
    pass_through_bwd: bool = False,
    block_size: int | None = None,
    axis: int | None = None,
    *,
    nonfinite_amax: str = "raise",
    out: Tensor | None = None,
) -> Tensor:
    """Round ``inputs`` to integers with ``scale = hi / amax`` and divide by the scale, in the dtype of ``inputs``.

    With hi = 2^(num_bits - 1 + unsigned) - 1 and lo = 0 (unsigned), -hi (narrow_range) or -hi - 1: ``clamp(rint((x -
    bias) * scale), lo, hi) / scale + bias``. All steps are in float32, each rounded once to nearest even, whatever
    the dtype of ``inputs``; float64 inputs are rounded to float32 first.

    Args:
        inputs: float32, float64, float16 or bfloat16; any shape and strides. An empty tensor gives an empty one.
        amax: largest magnitude, a number or a tensor that broadcasts against ``inputs``: (), (C, 1, 1), full shape.
        bias: subtracted before and added after; broadcasts too. A third positional number is ``num_bits``: the older
            order ``(inputs, amax, num_bits, unsigned, narrow_range, trt_high_precision_dtype)`` works as well.
        num_bits: 2 to 23 (1 to 23 unsigned).
        trt_high_precision_dtype, block_size, axis: only matter to ONNX export: the dtype around the nodes ("Float",
            "Half", "BFloat16"), and blocks of int4 weights along an axis.
        pass_through_bwd: if true, the gradient passes everywhere.
        nonfinite_amax: "raise" for an amax of NaN or infinity, or "propagate": such elements become NaN.
        out: tensor that receives the result; there is no gradient then.

    Where amax <= 2^-24 the result is 0 (infinity times 0 is NaN). NaN stays NaN, infinities are clamped, and the sign
    of zero is kept. The gradient passes where |x - bias| <= amax (not at NaN); amax and bias have none.
    Source: NVIDIA ModelOpt 0.40, ``fake_tensor_quant``; bit for bit.

    Raises:
        BitsError (ValueError): for another ``num_bits``.
        AmaxError (ValueError): for a negative amax, or one that is NaN or infinite.
        AmaxShapeError (RuntimeError, ValueError): for an amax or bias that does not broadcast.
        SignError (TypeError): for inputs below zero with ``unsigned``.
        DTypeError, DeviceError, OverlapError, GradError: as ``gemmsim.quantize``.

    Example:
        >>> gs.tensor_quant.fake_tensor_quant(torch.tensor([0.3, -1.0, 5.0]), 2.0)
        tensor([ 0.2992, -1.0079,  2.0000])
        >>> gs.tensor_quant.fake_tensor_quant(torch.tensor([0.3, -1.0, 5.0]), 2.0, num_bits=3)  # steps of 2/3
        tensor([ 0.0000, -1.3333,  2.0000])
    """
    owner = "fake_tensor_quant"
    name = integer_name(owner, num_bits, unsigned, narrow_range)
    propagate = check_nonfinite(owner, nonfinite_amax)
    required(owner, amax)
    x, scale, offset = prepared(owner, inputs, amax, bias)
    if out is not None:
        write_out(owner, x, out)
        fake_out_op(x, scale, name, offset, propagate, out)
        return out
    result: Tensor = applied("fake_tensor_quant", FakeQuant,
        x, scale, offset, num_bits, bool(unsigned), bool(narrow_range), trt_high_precision_dtype,
        bool(pass_through_bwd), block_size, axis, propagate,
    )  # fmt: skip
    return result


@takes_arrays
@both_vintages("num_bits", "unsigned", "narrow_range")
def legacy_fake_tensor_quant(
    inputs: Tensor,
    amax: Tensor | float,
    bias: Tensor | float | None = None,
    num_bits: int = 8,
    unsigned: bool = False,
    narrow_range: bool = True,
    *,
    pass_through_bwd: bool = False,
) -> Tensor:
    """``fake_tensor_quant`` with the arguments of ModelOpt's legacy function; same results and errors.

    ``pass_through_bwd``: False clips the gradient, as the code of ModelOpt's function does; True lets it pass
    everywhere, as the documentation of that function says.

    Example:
        >>> gs.tensor_quant.legacy_fake_tensor_quant(torch.tensor([0.3, -1.0, 5.0]), 2.0)
        tensor([ 0.2992, -1.0079,  2.0000])
    """
    result: Tensor = fake_tensor_quant(
        inputs, amax, bias, num_bits, unsigned, narrow_range, None, pass_through_bwd
    )  # fmt: skip
    return result


@takes_arrays
@both_vintages("num_bits", "unsigned", "narrow_range")
def tensor_quant(
    inputs: Tensor,
    amax: Tensor | float,
    bias: Tensor | float | None = None,
    num_bits: int = 8,
    unsigned: bool = False,
    narrow_range: bool = True,
    *,
    nonfinite_amax: str = "raise",
) -> tuple[Tensor, Tensor]:
    """Return the integers of ``fake_tensor_quant`` as floats, and their scale: ``integers / scale`` approximates
    ``inputs``.

    Both have the dtype of ``inputs``. The scale has amax's shape and is 1 where amax <= 2^-24. Arguments, special
    values and errors are those of ``fake_tensor_quant``. The integers' gradient passes where |x| <= amax; the scale's
    is ignored.

    Raises:
        AmaxError (ValueError): also for a scale that float16 inputs cannot hold (above 65504).

    Example:
        >>> gs.tensor_quant.tensor_quant(torch.tensor([0.3, -1.0, 5.0]), torch.tensor(2.0))
        (tensor([ 19., -64., 127.]), tensor(63.5000))
    """
    q, s = Integers.apply(*integers_arguments(inputs, amax, bias, num_bits, unsigned, narrow_range, nonfinite_amax))
    return q, s


def integers_arguments(
    inputs: Tensor,
    amax: Tensor | float,
    bias: Tensor | float | None,
    num_bits: int,
    unsigned: bool,
    narrow_range: bool,
    nonfinite_amax: str = "raise",
) -> tuple[Tensor, Tensor, int, bool, bool, bool]:
    """What ``Integers`` takes, from the arguments of ``tensor_quant``; ``BitsError``, ``AmaxError``, ... as there."""
    owner = "tensor_quant"
    integer_name(owner, num_bits, unsigned, narrow_range)
    propagate = check_nonfinite(owner, nonfinite_amax)
    required(owner, amax)
    x, scale, offset = prepared(owner, inputs, amax, bias)
    assert scale is not None
    if offset is not None:
        x = x - offset
    return x, scale, num_bits, bool(unsigned), bool(narrow_range), propagate


@takes_arrays
def fake_quant_impl(
    inputs: Tensor, amax: Tensor | float, num_bits: int = 8, unsigned: bool = False, narrow_range: bool = True
) -> Tensor:
    """``fake_tensor_quant`` without a gradient.

    Example:
        >>> gs.tensor_quant.fake_quant_impl(torch.tensor([0.3, -1.0, 2.0], requires_grad=True), 2.0)
        tensor([ 0.2992, -1.0079,  2.0000])
    """
    with torch.no_grad():
        result: Tensor = fake_tensor_quant(inputs, amax, None, num_bits, unsigned, narrow_range)
    return result


@takes_arrays
def int_cast_ste(x: Tensor, num_bits: int, unsigned: bool = False, narrow_range: bool = True) -> Tensor:
    """``clamp(rint(x), lo, hi)`` with a gradient where lo <= x <= hi; lo and hi are those of ``fake_tensor_quant``.

    With ``unsigned``, inputs below zero are clamped to 0.

    Raises:
        BitsError: for another ``num_bits``.

    Example:
        >>> gs.tensor_quant.int_cast_ste(torch.tensor([0.5, 1.5, -20.0]), 4)
        tensor([ 0.,  2., -7.])
    """
    name = integer_name("int_cast_ste", num_bits, unsigned, narrow_range)
    v, _, _ = prepared("int_cast_ste", x, None)
    high = 2.0 ** (num_bits - 1 + int(unsigned)) - 1
    low = 0.0 if unsigned else -high if narrow_range else -high - 1
    if unsigned:
        v = _Floor.apply(v)
    result: Tensor = applied("int_cast", _IntCast, v, name, low, high)
    return result


class _Floor(torch.autograd.Function):
    """Clamping at 0 from below; no gradient there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the mask."""
        ctx.save_for_backward(inputs[0] >= 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The gradient where nothing was clamped."""
        return fit(grad, ctx.saved_tensors[0])
