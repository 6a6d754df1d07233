"""Convolutions, ordinary and transposed, of quantised operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemmsim.ops.conv.convolution import (
    qconv1d,
    qconv2d,
    qconv3d,
    qconv_transpose1d,
    qconv_transpose2d,
    qconv_transpose3d,
)

from .errors import DescriptorError, message
from .integer_products import integer_values, product_formats
from .layer_base import QuantLayer, amax_of, integer_bits

__all__ = [
    "QuantConv1d",
    "QuantConv2d",
    "QuantConv3d",
    "QuantConvTranspose1d",
    "QuantConvTranspose2d",
    "QuantConvTranspose3d",
]

_CONVOLUTIONS = (qconv1d, qconv2d, qconv3d)
_TRANSPOSED = (qconv_transpose1d, qconv_transpose2d, qconv_transpose3d)
_NATIVE = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)


class _Convolution(QuantLayer):
    """With ``accumulator`` the integers are multiplied and summed in it, and the scales taken off after."""

    def _of_integers(self, x: Tensor, **options: Any) -> Tensor:
        """The layer's output by integer products, in ``x``'s dtype; ``options`` go to ``_sums``."""
        layer: Any = self
        scale = self.input_quantizer.pre_quant_scale
        x = x if scale is None else x * scale.to(x.dtype)
        found = []
        for q, t in ((self.input_quantizer, x), (self.weight_quantizer, self.weight)):
            bits = integer_bits(self, q)
            found.append(integer_values(t, amax_of(q, t), bits, q.unsigned, q.narrow_range))
        (q_x, scale_x), (q_w, scale_w) = found
        spatial = [1] * (self.weight.dim() - 2)
        channel = self._scale_of_channels(scale_x, scale_w).to(torch.float64).reshape(-1, *spatial)
        total = self._sums(q_x, q_w, **options)
        out = (total / (channel * scale_x.to(torch.float64).reshape(()))).to(torch.float32)
        out = out if layer.bias is None else out + layer.bias.to(torch.float32).reshape(-1, *spatial)
        return out.to(x.dtype)

    def _sums(self, x: Tensor, weight: Tensor, **options: Any) -> Tensor:
        """The convolution of the integers in the accumulator, in float64."""
        raise TypeError(f"{type(self).__name__} is no convolution; use QuantConv2d or one of its kind.")

    def _scale_of_channels(self, scale_x: Tensor, scale_w: Tensor) -> Tensor:
        """One weight scale, or one for each output channel; ``DescriptorError`` for scales inside the sums."""
        per_group, groups = self._outputs()
        dim = 1 if isinstance(self, _Transposed) else 0
        along = scale_w.numel() == 1 or (scale_w.dim() > dim and scale_w.numel() == scale_w.shape[dim] == per_group)
        if scale_x.numel() != 1 or not along:
            asked = f"integer convolution with scales {tuple(scale_x.shape)} and {tuple(scale_w.shape)}"
            allowed = "one for the input, one for each output channel of the weight"
            do = f"Describe the input with axis=None, the weight with axis={dim}."
            raise DescriptorError(message(asked, allowed, do))
        return scale_w.reshape(-1).repeat(groups) if scale_w.numel() > 1 else scale_w

    def _outputs(self) -> tuple[int, int]:
        """Output channels with weights of their own, and how often they repeat."""
        layer: Any = self
        return (self.weight.shape[1], layer.groups) if isinstance(self, _Transposed) else (self.weight.shape[0], 1)


class _Ordinary(_Convolution):
    """Convolutions."""

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, in ``x``'s dtype."""
        layer: Any = self
        if self._uses_integers:
            return self.output_quantizer(self._of_integers(x))
        out = layer._conv_forward(self.input_quantizer(x), self.quantised_weight(), layer.bias)
        return self.output_quantizer(out)

    def _sums(self, x: Tensor, weight: Tensor, **options: Any) -> Tensor:
        layer: Any = self
        assert self.accumulator is not None
        where = (layer.stride, layer.padding, layer.dilation, layer.groups)
        formats = product_formats(self.accumulator)
        convolve = _CONVOLUTIONS[weight.dim() - 3]
        return convolve(x, weight, None, *where, formats, padding_mode=layer.padding_mode, out_dtype=torch.float64)


class _Transposed(_Convolution):
    """Transposed convolutions. Output channels are dimension 1 of their weight."""

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The layer's output, in ``x``'s dtype."""
        layer: Any = self
        dims = self.weight.dim() - 2
        sizes = (layer.stride, layer.padding, layer.kernel_size, dims, layer.dilation)
        more = layer._output_padding(x, None if output_size is None else list(output_size), *sizes)
        if self._uses_integers:
            return self.output_quantizer(self._of_integers(x, output_padding=more))
        where = (layer.stride, layer.padding, more, layer.groups, layer.dilation)
        out = _NATIVE[dims - 1](self.input_quantizer(x), self.quantised_weight(), layer.bias, *where)
        return self.output_quantizer(out)

    def _sums(self, x: Tensor, weight: Tensor, **options: Any) -> Tensor:
        layer: Any = self
        assert self.accumulator is not None
        where = (layer.stride, layer.padding, options["output_padding"], layer.groups, layer.dilation)
        formats = product_formats(self.accumulator)
        return _TRANSPOSED[weight.dim() - 3](x, weight, None, *where, formats, out_dtype=torch.float64)


class QuantConv1d(_Ordinary, nn.Conv1d):
    """``nn.Conv1d`` with quantised operands, which ``quantize_`` makes from ``nn.Conv1d``.

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.Conv1d(2, 4, 3), {"*weight_quantizer": {"axis": 0}})
        >>> type(layer).__name__, layer(torch.ones(1, 2, 8)).shape
        ('QuantConv1d', torch.Size([1, 4, 6]))
    """


class QuantConv2d(_Ordinary, nn.Conv2d):
    """``nn.Conv2d`` with quantised operands, which ``quantize_`` makes from ``nn.Conv2d``.

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.Conv2d(2, 4, 3), {"*weight_quantizer": {"axis": 0}})
        >>> type(layer).__name__, layer.weight_quantizer
        ('QuantConv2d', TensorQuantizer(8 bit axis=0 amax=dynamic fake quant))
    """


class QuantConv3d(_Ordinary, nn.Conv3d):
    """``nn.Conv3d`` with quantised operands, which ``quantize_`` makes from ``nn.Conv3d``.

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.Conv3d(2, 4, 3), {"*input_quantizer": {}}, spec="int(32)")
        >>> type(layer).__name__, layer.spec
        ('QuantConv3d', 'int(32)')
    """


class QuantConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """``nn.ConvTranspose1d`` with quantised operands, which ``quantize_`` makes from ``nn.ConvTranspose1d``.

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.ConvTranspose1d(2, 4, 3), {"*weight_quantizer": {"axis": 1}})
        >>> type(layer).__name__, layer(torch.ones(1, 2, 8)).shape
        ('QuantConvTranspose1d', torch.Size([1, 4, 10]))
    """


class QuantConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` with quantised operands, which ``quantize_`` makes from ``nn.ConvTranspose2d``.

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.ConvTranspose2d(2, 4, 3), {"*weight_quantizer": {"axis": 1}})
        >>> type(layer).__name__, layer(torch.ones(1, 2, 8, 8)).shape
        ('QuantConvTranspose2d', torch.Size([1, 4, 10, 10]))
    """


class QuantConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """``nn.ConvTranspose3d`` with quantised operands, which ``quantize_`` makes from ``nn.ConvTranspose3d``.

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.ConvTranspose3d(2, 4, 3), {"*weight_quantizer": {"axis": 1}})
        >>> type(layer).__name__, layer.input_quantizer
        ('QuantConvTranspose3d', TensorQuantizer(disabled))
    """
