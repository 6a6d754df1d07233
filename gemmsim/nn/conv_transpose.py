"""Transposed convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from gemmsim.ops import qconv_transpose1d, qconv_transpose2d, qconv_transpose3d

from .affine_base import AffineModule

__all__ = [
    "QConvTranspose1d",
    "QConvTranspose2d",
    "QConvTranspose3d",
    "QLazyConvTranspose1d",
    "QLazyConvTranspose2d",
    "QLazyConvTranspose3d",
]


class _ConvTranspose(AffineModule):
    weight: Any
    bias: Any
    stride: Any
    padding: Any
    output_padding: Any
    groups: Any
    dilation: Any
    #: Of as many dimensions as the module has.
    _function: ClassVar[Callable[..., Tensor]]

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """``gemmsim.qconv_transpose1d``, ``qconv_transpose2d`` or ``qconv_transpose3d`` with the module's arguments."""
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
            self.formats,
            output_size=output_size,
        )


class QConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    """``torch.nn.ConvTranspose1d`` with its arguments and ``spec``: a ``QAffineFormats``, a spec or a string.

    The values and errors are those of ``gemmsim.qconv_transpose1d``; None computes PyTorch's own operation.

    Example:
        >>> gs.nn.QConvTranspose1d(2, 4, 3, stride=2, spec="e4m3 : e5m10")(torch.ones(1, 2, 8)).shape
        torch.Size([1, 4, 17])
    """

    float_class = nn.ConvTranspose1d
    _function = staticmethod(qconv_transpose1d)


class QLazyConvTranspose1d(_ConvTranspose, nn.LazyConvTranspose1d):
    """``torch.nn.LazyConvTranspose1d`` with its arguments and ``spec``; its first input makes it a
    ``QConvTranspose1d``.

    Example:
        >>> layer = gs.nn.QLazyConvTranspose1d(4, 3, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 8)).shape, type(layer).__name__, layer.in_channels
        (torch.Size([1, 4, 10]), 'QConvTranspose1d', 2)
    """

    cls_to_become = QConvTranspose1d
    float_class = nn.ConvTranspose1d
    _function = staticmethod(qconv_transpose1d)
    from_float = QConvTranspose1d.from_float  # type: ignore[assignment]  # it is what the class becomes


class QConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d`` with its arguments and ``spec``: a ``QAffineFormats``, a spec or a string.

    The values and errors are those of ``gemmsim.qconv_transpose2d``; None computes PyTorch's own operation.

    Example:
        >>> plain = torch.nn.ConvTranspose2d(2, 4, 3, stride=2)
        >>> gs.nn.QConvTranspose2d.from_float(plain, "e4m3 : e5m10")(torch.ones(1, 2, 4, 4)).shape
        torch.Size([1, 4, 9, 9])
    """

    float_class = nn.ConvTranspose2d
    _function = staticmethod(qconv_transpose2d)


class QLazyConvTranspose2d(_ConvTranspose, nn.LazyConvTranspose2d):
    """``torch.nn.LazyConvTranspose2d`` with its arguments and ``spec``; its first input makes it a
    ``QConvTranspose2d``.

    Example:
        >>> layer = gs.nn.QLazyConvTranspose2d(4, 3, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 8, 8)).shape, type(layer).__name__, layer.in_channels
        (torch.Size([1, 4, 10, 10]), 'QConvTranspose2d', 2)
    """

    cls_to_become = QConvTranspose2d
    float_class = nn.ConvTranspose2d
    _function = staticmethod(qconv_transpose2d)
    from_float = QConvTranspose2d.from_float  # type: ignore[assignment]  # it is what the class becomes


class QConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    """``torch.nn.ConvTranspose3d`` with its arguments and ``spec``: a ``QAffineFormats``, a spec or a string.

    The values and errors are those of ``gemmsim.qconv_transpose3d``; None computes PyTorch's own operation.

    Example:
        >>> layer = gs.nn.QConvTranspose3d(2, 4, 3, output_padding=1, stride=2, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 3, 3, 3)).shape
        torch.Size([1, 4, 8, 8, 8])
    """

    float_class = nn.ConvTranspose3d
    _function = staticmethod(qconv_transpose3d)


class QLazyConvTranspose3d(_ConvTranspose, nn.LazyConvTranspose3d):
    """``torch.nn.LazyConvTranspose3d`` with its arguments and ``spec``; its first input makes it a
    ``QConvTranspose3d``.

    Example:
        >>> layer = gs.nn.QLazyConvTranspose3d(4, 3, spec="e4m3 : e5m10")
        >>> layer(torch.ones(1, 2, 3, 3, 3)).shape, type(layer).__name__, layer.in_channels
        (torch.Size([1, 4, 5, 5, 5]), 'QConvTranspose3d', 2)
    """

    cls_to_become = QConvTranspose3d
    float_class = nn.ConvTranspose3d
    _function = staticmethod(qconv_transpose3d)
    from_float = QConvTranspose3d.from_float  # type: ignore[assignment]  # it is what the class becomes
