"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from gemmsim.ops import qconv1d, qconv2d, qconv3d

from .affine_base import AffineModule

__all__ = ["QConv1d", "QConv2d", "QConv3d", "QLazyConv1d", "QLazyConv2d", "QLazyConv3d"]


class _Conv(AffineModule):
    weight: Any
    bias: Any
    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    padding_mode: Any
    #: Of as many dimensions as the module has.
    _function: ClassVar[Callable[..., Tensor]]

    def forward(self, input: Tensor) -> Tensor:
        """``gemmsim.qconv1d``, ``qconv2d`` or ``qconv3d`` with the module's arguments."""
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.formats,
            padding_mode=self.padding_mode,
        )


class QConv1d(_Conv, nn.Conv1d):
    """``torch.nn.Conv1d`` with its arguments and ``spec``: a ``QAffineFormats``, a spec or a string.

    The values and errors are those of ``gemmsim.qconv1d``; None computes PyTorch's own convolution.

    Example:
        >>> layer = gs.nn.QConv1d(1, 1, 2, bias=False, spec="e4m3 : fp32")
        >>> layer.weight.data.fill_(1)
        tensor([[[1., 1.]]])
        >>> layer(torch.tensor([[[1.0, 2.0, 17.0]]])).detach()  # E4M3 rounds 17 to 16
        tensor([[[ 3., 18.]]])
    """

    float_class = nn.Conv1d
    _function = staticmethod(qconv1d)


class QLazyConv1d(_Conv, nn.LazyConv1d):
    """``torch.nn.LazyConv1d`` with its arguments and ``spec``; its first input makes it a ``QConv1d``.

    Example:
        >>> layer = gs.nn.QLazyConv1d(4, 3, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 8)).shape, type(layer).__name__, layer.in_channels
        (torch.Size([1, 4, 6]), 'QConv1d', 2)
    """

    cls_to_become = QConv1d
    float_class = nn.Conv1d
    _function = staticmethod(qconv1d)
    from_float = QConv1d.from_float  # type: ignore[assignment]  # it is what the class becomes


class QConv2d(_Conv, nn.Conv2d):
    """``torch.nn.Conv2d`` with its arguments and ``spec``: a ``QAffineFormats``, a spec or a string.

    The values and errors are those of ``gemmsim.qconv2d``; None computes PyTorch's own convolution.

    Example:
        >>> layer = gs.nn.QConv2d(3, 16, 3, padding=1, spec="e4m3 : chunked(9, e5m10)")  # a chunk is a channel
        >>> layer(torch.ones(1, 3, 8, 8)).shape
        torch.Size([1, 16, 8, 8])
    """

    float_class = nn.Conv2d
    _function = staticmethod(qconv2d)


class QLazyConv2d(_Conv, nn.LazyConv2d):
    """``torch.nn.LazyConv2d`` with its arguments and ``spec``; its first input makes it a ``QConv2d``.

    Example:
        >>> layer = gs.nn.QLazyConv2d(4, 3, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 8, 8)).shape, type(layer).__name__, layer.in_channels
        (torch.Size([1, 4, 6, 6]), 'QConv2d', 2)
    """

    cls_to_become = QConv2d
    float_class = nn.Conv2d
    _function = staticmethod(qconv2d)
    from_float = QConv2d.from_float  # type: ignore[assignment]  # it is what the class becomes


class QConv3d(_Conv, nn.Conv3d):
    """``torch.nn.Conv3d`` with its arguments and ``spec``: a ``QAffineFormats``, a spec or a string.

    The values and errors are those of ``gemmsim.qconv3d``; None computes PyTorch's own convolution.

    Example:
        >>> gs.nn.QConv3d(2, 4, 3, spec="e4m3 : e5m10")(torch.ones(1, 2, 5, 5, 5)).shape
        torch.Size([1, 4, 3, 3, 3])
    """

    float_class = nn.Conv3d
    _function = staticmethod(qconv3d)


class QLazyConv3d(_Conv, nn.LazyConv3d):
    """``torch.nn.LazyConv3d`` with its arguments and ``spec``; its first input makes it a ``QConv3d``.

    Example:
        >>> layer = gs.nn.QLazyConv3d(4, 3, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 5, 5, 5)).shape, type(layer).__name__, layer.in_channels
        (torch.Size([1, 4, 3, 3, 3]), 'QConv3d', 2)
    """

    cls_to_become = QConv3d
    float_class = nn.Conv3d
    _function = staticmethod(qconv3d)
    from_float = QConv3d.from_float  # type: ignore[assignment]  # it is what the class becomes
