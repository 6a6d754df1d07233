"""ModelOpt's autograd functions: ``apply`` is the function of the same meaning, the steps are as documented there.

``forward(ctx, ...)`` and ``backward(ctx, ...)`` may be called by functions of one's own: ``ctx`` is PyTorch's context,
or anything with ``save_for_backward`` and ``saved_tensors``. A subclass is applied with its own steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import onnx_symbolic as onnx
from .affine import FakeAffine, fake_affine_tensor_quant
from .arguments import as_amax, both_vintages
from .block_quantization import DynamicBlock, dynamic_block_quant, static_block_quant
from .floating import ScaledElement, scaled_e4m3
from .gradients import clip_mask, fit
from .grids import IntegerGrid, NumBits
from .integer import (
    FakeQuant,
    Integers,
    fake_tensor_quant,
    integers_arguments,
    legacy_fake_tensor_quant,
    tensor_quant,
)

__all__ = [
    "DynamicBlockQuantizationFunction",
    "FakeAffineTensorQuantFunction",
    "FakeTensorQuantFunction",
    "LegacyFakeTensorQuantFunction",
    "ScaledE4M3Function",
    "StaticBlockQuantizationFunction",
    "TensorQuantFunction",
]

_Grads = tuple[Tensor | None, ...]


def _keep(ctx: Any, inputs: Tensor, amax: Any, bias: Any, passes: bool) -> None:
    """Save what the clipping mask is made from; nothing where the gradient passes everywhere."""
    if passes or amax is None:
        ctx.save_for_backward()
    else:
        ctx.save_for_backward(inputs, as_amax(amax, inputs), None if bias is None else as_amax(bias, inputs))


def _kept(ctx: Any) -> tuple[Any, ...]:
    """What ``forward`` saved; of a context outside any graph, too, which has no ``saved_tensors``."""
    return tuple(getattr(ctx, "saved_tensors", None) or getattr(ctx, "to_save", None) or ())


def _clipped(ctx: Any, grad: Tensor) -> Tensor:
    """``grad`` where |inputs - bias| <= amax, summed to the inputs' shape; all of it where nothing was saved."""
    kept = _kept(ctx)
    if not kept:
        return grad
    x, amax, bias = kept
    return fit(grad, clip_mask(x, amax, bias)).sum_to_size(x.shape)


class _Applied(torch.autograd.Function):
    """A class whose ``apply`` is ``_function``; a subclass without one is applied with its steps."""

    _function: ClassVar[Callable[..., Any]]

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """The function of the same meaning, of the arguments."""
        return cls._function(*args, **kwargs) if "_function" in vars(cls) else super().apply(*args, **kwargs)


class FakeTensorQuantFunction(_Applied):
    """``fake_tensor_quant`` as an autograd function; ``apply`` and the steps accept both argument orders.

    Example:
        >>> x = torch.tensor([0.3, -5.0], requires_grad=True)
        >>> gs.tensor_quant.FakeTensorQuantFunction.apply(x, torch.tensor(2.0)).sum().backward()
        >>> x.grad  # clipped elements have none
        tensor([1., 0.])
    """

    _function = staticmethod(fake_tensor_quant)

    @staticmethod
    @both_vintages("num_bits", "unsigned", "narrow_range", "trt_high_precision_dtype", before=3)
    def forward(
        ctx: Any,
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
    ) -> Tensor:
        """``fake_tensor_quant`` without a gradient; saves inputs, amax and bias in ``ctx``."""
        with torch.no_grad():
            result: Tensor = fake_tensor_quant(inputs, amax, bias, num_bits, unsigned, narrow_range)
        _keep(ctx, inputs, amax, bias, pass_through_bwd)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> _Grads:
        """The gradient where |inputs - bias| <= amax, and None for each other argument."""
        return _clipped(ctx, grad_outputs), *([None] * 9)

    @staticmethod
    @both_vintages("num_bits", "unsigned", "narrow_range", "trt_high_precision_dtype", before=3)
    def symbolic(g: Any, inputs: Any, amax: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
        """ONNX nodes of ``fake_tensor_quant``, docs/reference/tensor_quant.md#onnx."""
        return FakeQuant.symbolic(g, inputs, amax, bias, *args, **kwargs)


class LegacyFakeTensorQuantFunction(_Applied):
    """``legacy_fake_tensor_quant`` as an autograd function.

    Example:
        >>> gs.tensor_quant.LegacyFakeTensorQuantFunction.apply(torch.tensor([0.3, -1.0, 2.0]), torch.tensor(2.0))
        tensor([ 0.2992, -1.0079,  2.0000])
    """

    _function = staticmethod(legacy_fake_tensor_quant)

    @staticmethod
    @both_vintages("num_bits", "unsigned", "narrow_range", before=3)
    def forward(
        ctx: Any,
        inputs: Tensor,
        amax: Tensor | float,
        bias: Tensor | float | None = None,
        num_bits: int = 8,
        unsigned: bool = False,
        narrow_range: bool = True,
        *,
        pass_through_bwd: bool = False,
    ) -> Tensor:
        """``legacy_fake_tensor_quant`` without a gradient; saves inputs, amax and bias in ``ctx``."""
        with torch.no_grad():
            result: Tensor = legacy_fake_tensor_quant(inputs, amax, bias, num_bits, unsigned, narrow_range)
        _keep(ctx, inputs, amax, bias, pass_through_bwd)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> _Grads:
        """The gradient where |inputs - bias| <= amax, everywhere with ``pass_through_bwd``; None for the others."""
        return _clipped(ctx, grad_outputs), *([None] * 5)

    @staticmethod
    @both_vintages("num_bits", "unsigned", "narrow_range", before=3)
    def symbolic(g: Any, inputs: Any, amax: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
        """ONNX nodes of ``fake_tensor_quant``, docs/reference/tensor_quant.md#onnx."""
        return FakeQuant.symbolic(g, inputs, amax, bias, *args, **kwargs)


class TensorQuantFunction(_Applied):
    """``tensor_quant`` as an autograd function.

    Example:
        >>> gs.tensor_quant.TensorQuantFunction.apply(torch.tensor([0.3, -1.0, 2.0]), torch.tensor(2.0))
        (tensor([ 19., -64., 127.]), tensor(63.5000))
    """

    _function = staticmethod(tensor_quant)

    @staticmethod
    @both_vintages("num_bits", "unsigned", "narrow_range", before=3)
    def forward(
        ctx: Any,
        inputs: Tensor,
        amax: Tensor | float,
        bias: Tensor | float | None = None,
        num_bits: int = 8,
        unsigned: bool = False,
        narrow_range: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """``tensor_quant`` without a gradient: integers and scale; saves inputs, amax and bias in ``ctx``."""
        with torch.no_grad():  # not by another autograd function: with two results the older exporter cannot nest it
            result = Integers.forward(*integers_arguments(inputs, amax, bias, num_bits, unsigned, narrow_range))
        _keep(ctx, inputs, amax, bias, False)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_scale: Tensor | None = None) -> _Grads:
        """The integers' gradient where |inputs - bias| <= amax; the scale's is ignored."""
        return _clipped(ctx, grad_outputs), *([None] * 5)

    @staticmethod
    def symbolic(
        g: Any,
        inputs: Any,
        amax: Any,
        num_bits: int = 8,
        unsigned: bool = False,
        narrow_range: bool = True,
        trt_high_precision_dtype: str | None = None,
    ) -> tuple[Any, Any]:
        """ONNX nodes of the integers as floats and of their scale."""
        grid = IntegerGrid(num_bits, unsigned, narrow_range)
        return onnx.export_integers(g, inputs, amax, grid, trt_high_precision_dtype)


class FakeAffineTensorQuantFunction(_Applied):
    """``fake_affine_tensor_quant`` as an autograd function.

    Example:
        >>> gs.tensor_quant.FakeAffineTensorQuantFunction.apply(torch.tensor([-5.0, 0.3, 2.0]), -1.0, 2.0, 2)
        tensor([-1.,  0.,  2.])
    """

    _function = staticmethod(fake_affine_tensor_quant)

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, min_range: Tensor | float, max_range: Tensor | float, num_bits: int = 8
    ) -> Tensor:
        """``fake_affine_tensor_quant`` without a gradient; saves inputs and ranges in ``ctx``."""
        with torch.no_grad():
            result = fake_affine_tensor_quant(inputs, min_range, max_range, num_bits)
        ctx.save_for_backward(inputs, as_amax(min_range, inputs), as_amax(max_range, inputs))
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> _Grads:
        """The gradient where min_range <= inputs <= max_range, and None for the other arguments."""
        x, low, high = _kept(ctx)
        return fit(grad_outputs, (x >= low) & (x <= high)).sum_to_size(x.shape), None, None, None

    @staticmethod
    def symbolic(g: Any, inputs: Any, min_range: Any, max_range: Any, num_bits: int = 8) -> Any:
        """QuantizeLinear and DequantizeLinear with a zero point."""
        return FakeAffine.symbolic(g, inputs, min_range, max_range, num_bits)


class ScaledE4M3Function(_Applied):
    """``scaled_e4m3`` as an autograd function; ``apply`` and the steps accept both argument orders.

    Example:
        >>> gs.tensor_quant.ScaledE4M3Function.apply(torch.tensor([0.3, -1.0, 2.0]), torch.tensor(2.0))
        tensor([ 0.2857, -1.0000,  2.0000])
    """

    _function = staticmethod(scaled_e4m3)

    @staticmethod
    @both_vintages("E", "M", "trt_high_precision_dtype", before=3)
    def forward(
        ctx: Any,
        inputs: Tensor,
        amax: Tensor | float | None,
        bias: Tensor | float | None = None,
        E: int = 4,
        M: int = 3,
        trt_high_precision_dtype: str | None = None,
        pass_through_bwd: bool = False,
    ) -> Tensor:
        """``scaled_e4m3`` without a gradient; saves inputs, amax and bias in ``ctx``."""
        with torch.no_grad():
            result: Tensor = scaled_e4m3(inputs, amax, bias, E, M)
        _keep(ctx, inputs, amax, bias, pass_through_bwd)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> _Grads:
        """The gradient where |inputs - bias| <= amax, everywhere without amax, and None for the other arguments."""
        return _clipped(ctx, grad_outputs), *([None] * 6)

    @staticmethod
    @both_vintages("E", "M", "trt_high_precision_dtype", before=3)
    def symbolic(
        g: Any,
        inputs: Any,
        amax: Any = None,
        bias: Any = None,
        E: int = 4,
        M: int = 3,
        trt_high_precision_dtype: str | None = None,
        *rest: Any,
    ) -> Any:
        """TRT_FP8QuantizeLinear and TRT_FP8DequantizeLinear."""
        return ScaledElement.symbolic(g, inputs, amax, bias, E, M, trt_high_precision_dtype)


class DynamicBlockQuantizationFunction(_Applied):
    """``dynamic_block_quant`` as an autograd function; ``apply`` and the steps accept both argument orders.

    Example:
        >>> x = torch.tensor([1.0, 7.0, 0.1, 0.2])
        >>> gs.tensor_quant.DynamicBlockQuantizationFunction.apply(x, 2, None, None, (2, 1))
        tensor([1.0000, 8.0000, 0.0938, 0.1875])
    """

    _function = staticmethod(dynamic_block_quant)

    @staticmethod
    @both_vintages(
        "num_bits", "scale_bits", "trt_high_precision_dtype", "onnx_quantizer_type", before=4, kinds=(tuple, list)
    )
    def forward(
        ctx: Any,
        inputs: Tensor,
        block_size: int,
        amax: Tensor | float | None = None,
        bias: Tensor | float | None = None,
        num_bits: NumBits = (4, 3),
        scale_bits: tuple[int, int] | None = (8, 0),
        trt_high_precision_dtype: str | None = None,
        onnx_quantizer_type: str = "dynamic",
        pass_through_bwd: bool = True,
    ) -> Tensor:
        """``dynamic_block_quant`` without a gradient; saves inputs, amax and bias in ``ctx``."""
        with torch.no_grad():
            result: Tensor = dynamic_block_quant(inputs, block_size, amax, bias, num_bits, scale_bits)
        _keep(ctx, inputs, amax, bias, pass_through_bwd)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> _Grads:
        """The gradient, unless ``pass_through_bwd=False`` where |inputs - bias| <= amax alone; None for the others."""
        return _clipped(ctx, grad_outputs), *([None] * 8)

    @staticmethod
    @both_vintages(
        "num_bits", "scale_bits", "trt_high_precision_dtype", "onnx_quantizer_type", before=4, kinds=(tuple, list)
    )
    def symbolic(
        g: Any, inputs: Any, block_size: int, amax: Any = None, bias: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """TensorRT's nodes for MXFP8 and NVFP4."""
        return DynamicBlock.symbolic(g, inputs, block_size, amax, bias, *args, **kwargs)


class StaticBlockQuantizationFunction(_Applied):
    """``static_block_quant`` as an autograd function.

    Example:
        >>> x, amax = torch.tensor([1.0, 7.0, 0.1, 0.2]), torch.tensor([[7.0], [0.2]])
        >>> gs.tensor_quant.StaticBlockQuantizationFunction.apply(x, 2, amax, None, 4)
        tensor([1.0000, 7.0000, 0.1143, 0.2000])
    """

    _function = staticmethod(static_block_quant)

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        block_size: int,
        amax: Tensor | float,
        bias: Tensor | float | None = None,
        num_bits: int = 8,
        unsigned: bool = False,
        narrow_range: bool = True,
        pass_through_bwd: bool = False,
    ) -> Tensor:
        """``static_block_quant`` without a gradient; saves rows of blocks, their amaxes and bias in ``ctx``."""
        with torch.no_grad():
            result = static_block_quant(inputs, block_size, amax, bias, num_bits, unsigned, narrow_range)
        rows = inputs.detach().reshape(-1, block_size)
        each = isinstance(amax, Tensor) and amax.numel() == len(rows)
        _keep(ctx, rows, amax.reshape(-1, 1) if each else amax, bias, pass_through_bwd)  # type: ignore[union-attr]
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> _Grads:
        """The gradient where |inputs - bias| <= the block's amax, and None for the other arguments."""
        kept = _kept(ctx)
        rows = grad_outputs.reshape(kept[0].shape) if kept else grad_outputs
        return _clipped(ctx, rows).reshape(grad_outputs.shape), *([None] * 7)

    @staticmethod
    def symbolic(
        g: Any, inputs: Any, block_size: int, amax: Any, bias: Any = None, num_bits: int = 8, *rest: Any
    ) -> Any:
        """trt::DequantizeLinear of blocks of int4.

        Raises:
            ExportError: for a bias. BitsError: for another number of bits than 4.
        """
        onnx.check_no_bias(bias)
        return onnx.export_int4(g, inputs, amax, num_bits, None, block_size, -1)
