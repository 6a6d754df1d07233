"""mptorch's modules: those of ``gemmsim.nn`` with ``formats`` before the optional arguments.

They round their parameters in place when they are created. ``device`` and ``dtype`` come last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gemmsim import nn as qnn

from .formats import QAffineFormats, QGELUFormats, QLayerNormFormats, QSoftmaxFormats, Quant, native_quant
from .quantizers import Quantizer
from .straight import StraightThrough, as_function

__all__ = [
    "QAvgPool2d",
    "QBatchNorm",
    "QBatchNorm1d",
    "QBatchNorm2d",
    "QConv1d",
    "QConv2d",
    "QConv3d",
    "QConvTranspose1d",
    "QConvTranspose2d",
    "QConvTranspose3d",
    "QGELU",
    "QLayerNorm",
    "QLazyLinear",
    "QLinear",
    "QSoftmax",
    "Quantizer",
]


class _Quantised(torch.nn.Module):
    """The methods of mptorch's modules."""

    formats: Any

    def reset_quant_function(self) -> None:
        """Make ``Qw``, ``Qb``, ``Qi`` and ``Qo``: quantisers of weight, bias, input, output and their gradients."""
        names = {"Qw": "weight_quant", "Qb": "bias_quant", "Qi": "input_quant", "Qo": "output_quant"}
        for attribute, name in names.items():
            if hasattr(self.formats, name):
                setattr(self, attribute, self.quant_function(getattr(self.formats, name), self.formats.grad_quant))

    @staticmethod
    def quant_function(fwd_quant: Quant, bwd_quant: Quant) -> Callable[[Tensor], Tensor]:
        """A function that rounds a tensor by ``fwd_quant`` and its gradient by ``bwd_quant``."""
        return StraightThrough(as_function(native_quant(fwd_quant)), as_function(native_quant(bwd_quant)))

    @torch.no_grad()
    def quant_parameters(self) -> None:
        """Round weight and bias in place."""
        for name, quant in (("weight", self.formats.weight_quant), ("bias", self.formats.bias_quant)):
            parameter = getattr(self, name, None)
            if isinstance(parameter, Tensor):
                parameter.copy_(as_function(quant)(parameter))

    def _finish(self) -> None:
        self.reset_quant_function()
        self.quant_parameters()


class QLinear(_Quantised, qnn.QLinear):
    """``gemmsim.nn.QLinear`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QLinear(8, 8, quant.QAffineFormats(weight_quant=(FloatingPoint(4, 3), "nearest")))
        >>> torch.equal(layer.weight, quant.float_quantize(layer.weight.detach(), 4, 3, "nearest"))
        True
    """

    def __init__(
        self, in_features: int, out_features: int, formats: QAffineFormats, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, device, dtype, spec=formats)
        self._finish()


class QLazyLinear(qnn.QLazyLinear, QLinear):
    """``gemmsim.nn.QLazyLinear`` with mptorch's arguments. It is a ``QLinear``; its first input makes it a plain one.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QLazyLinear(1, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(2, 3)).shape, type(layer).__name__
        (torch.Size([2, 1]), 'QLinear')
    """

    cls_to_become: Any = QLinear
    float_class: Any = torch.nn.Linear

    def __init__(
        self, out_features: int, formats: QAffineFormats, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super(QLinear, self).__init__(out_features, bias, device, dtype, spec=formats)  # as the lazy layer
        self.reset_quant_function()

    def initialize_parameters(self, input: Tensor) -> None:
        """Initialise the parameters as ``torch.nn.LazyLinear`` does, and round them."""
        super().initialize_parameters(input)
        self.quant_parameters()


class _Conv(_Quantised):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, formats: QAffineFormats, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        where = (stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *where, spec=formats)
        self._finish()


class QConv1d(_Conv, qnn.QConv1d):
    """``gemmsim.nn.QConv1d`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QConv1d(1, 2, 3, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(1, 1, 8)).shape
        torch.Size([1, 2, 6])
    """


class QConv2d(_Conv, qnn.QConv2d):
    """``gemmsim.nn.QConv2d`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QConv2d(1, 2, 3, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(1, 1, 8, 8)).shape
        torch.Size([1, 2, 6, 6])
    """


class QConv3d(_Conv, qnn.QConv3d):
    """``gemmsim.nn.QConv3d`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QConv3d(1, 2, 3, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(1, 1, 4, 4, 4)).shape
        torch.Size([1, 2, 2, 2, 2])
    """


class _ConvTranspose(_Quantised):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, formats: QAffineFormats, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        where = (stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *where, spec=formats)
        self._finish()


class QConvTranspose1d(_ConvTranspose, qnn.QConvTranspose1d):
    """``gemmsim.nn.QConvTranspose1d`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QConvTranspose1d(1, 2, 3, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(1, 1, 8)).shape
        torch.Size([1, 2, 10])
    """


class QConvTranspose2d(_ConvTranspose, qnn.QConvTranspose2d):
    """``gemmsim.nn.QConvTranspose2d`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QConvTranspose2d(1, 2, 3, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(1, 1, 8, 8)).shape
        torch.Size([1, 2, 10, 10])
    """


class QConvTranspose3d(_ConvTranspose, qnn.QConvTranspose3d):
    """``gemmsim.nn.QConvTranspose3d`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QConvTranspose3d(1, 2, 3, quant.QAffineFormats(fwd_mac=FloatingPoint(5, 10)))
        >>> layer(torch.ones(1, 1, 4, 4, 4)).shape
        torch.Size([1, 2, 6, 6, 6])
    """


class QAvgPool2d(qnn.QAvgPool2d):
    """``gemmsim.nn.QAvgPool2d`` with mptorch's arguments.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> act = (FloatingPoint(4, 3), "nearest")
        >>> quant.QAvgPool2d(2, act, act)(torch.tensor([[[[1.0, 1.25], [1.5, 2.0]]]]))
        tensor([[[[1.5000]]]])
    """

    def __init__(
        self, kernel_size: Any, fwd_quant: Quant, bwd_quant: Quant, stride: Any = None, padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        quants = {"fwd_quant": native_quant(fwd_quant), "bwd_quant": native_quant(bwd_quant)}
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, **quants)


class QBatchNorm(qnn.Emulated, torch.nn.Module):
    """The base class of ``QBatchNorm1d`` and ``QBatchNorm2d``; you cannot create one itself.

    Raises:
        TypeError: where it is created itself.

    Example:
        >>> from gemmsim.compat.mptorch import quant
        >>> issubclass(quant.QBatchNorm1d, quant.QBatchNorm)
        True
    """

    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(
        self, num_features: int, fwd_quant: Quant, bwd_quant: Quant, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if not isinstance(self, torch.nn.modules.batchnorm._BatchNorm):
            asked = f"{type(self).__name__}({num_features}, ...)"
            raise TypeError(f"{asked}; allowed: layers of one rank.\n  Use QBatchNorm1d or QBatchNorm2d.")
        quants = {"fwd_quant": native_quant(fwd_quant), "bwd_quant": native_quant(bwd_quant)}
        where = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *where, **quants)

    @property
    def moving_mean(self) -> Tensor | None:
        """``running_mean``."""
        return self.running_mean

    @property
    def moving_var(self) -> Tensor | None:
        """``running_var``."""
        return self.running_var


class QBatchNorm1d(QBatchNorm, qnn.QBatchNorm1d):
    """``gemmsim.nn.QBatchNorm1d`` with mptorch's arguments.

    Statistics are buffers. ``training`` decides whether the batch's or the moving ones apply.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> act = (FloatingPoint(4, 3), "nearest")
        >>> quant.QBatchNorm1d(1, act, act, affine=False)(torch.tensor([[1.0], [2.0], [4.0]]))
        tensor([[-1.0000],
                [-0.2031],
                [ 1.3750]])
    """


class QBatchNorm2d(QBatchNorm, qnn.QBatchNorm2d):
    """``gemmsim.nn.QBatchNorm2d`` with mptorch's arguments.

    Statistics are buffers. ``training`` decides whether the batch's or the moving ones apply.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> act = (FloatingPoint(4, 3), "nearest")
        >>> quant.QBatchNorm2d(1, act, act, affine=False)(torch.tensor([[[[1.0, 2.0, 4.0]]]]))
        tensor([[[[-1.0000, -0.2031,  1.3750]]]])
    """


class QLayerNorm(_Quantised, qnn.QLayerNorm):
    """``gemmsim.nn.QLayerNorm`` with mptorch's arguments. It rounds its parameters in place when it is created.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QLayerNorm(3, quant.QLayerNormFormats(*[FloatingPoint(5, 4)] * 4), elementwise_affine=False)
        >>> layer(torch.tensor([1.0, 2.0, 4.0]))
        tensor([-1.1250, -0.2969,  1.3125])
    """

    def __init__(
        self, normalized_shape: Any, formats: QLayerNormFormats, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype, spec=formats)
        self._finish()


class QSoftmax(_Quantised, qnn.QSoftmax):
    """``gemmsim.nn.QSoftmax`` with mptorch's arguments.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> layer = quant.QSoftmax(-1, quant.QSoftmaxFormats(*[FloatingPoint(5, 4)] * 3))
        >>> layer(torch.tensor([0.0, 1.0]))
        tensor([0.2727, 0.7273])
    """

    def __init__(self, dim: int | None, formats: QSoftmaxFormats) -> None:
        super().__init__(dim, spec=formats)
        self.reset_quant_function()


class QGELU(_Quantised, qnn.QGELU):
    """``gemmsim.nn.QGELU`` with mptorch's arguments.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QGELUFormats(output_quant=(FloatingPoint(4, 3), "nearest"))
        >>> quant.QGELU(formats)(torch.tensor([1.0]))
        tensor([0.8125])
    """

    def __init__(self, formats: QGELUFormats, approximate: str = "none") -> None:
        super().__init__(approximate, spec=formats)
        self.reset_quant_function()
