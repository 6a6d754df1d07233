"""Layers with a quantiser for their input, their weight and their output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemmsim.ops import qconv1d, qconv2d, qconv3d

from .errors import DescriptorError, message
from .integer_products import int_linear, integer_values, product_formats
from .max_calibrator import largest_magnitude
from .quantizer import TensorQuantizer

__all__ = ["QUANTISED", "QUANTIZERS", "QuantLayer", "QuantLinear", "convert"]

_CONVOLUTIONS = (qconv1d, qconv2d, qconv3d)
QUANTIZERS = ("input_quantizer", "weight_quantizer", "output_quantizer")


class QuantLayer:
    """What quantised layers share: three quantisers, and the accumulator of integer products (None: PyTorch's own)."""

    input_quantizer: TensorQuantizer
    weight_quantizer: TensorQuantizer
    output_quantizer: TensorQuantizer
    weight: Tensor
    accumulator: str | None

    def quantised_weight(self) -> Tensor:
        """The weight as the layer multiplies it."""
        return self.weight_quantizer(self.weight)

    @property
    def _uses_integers(self) -> bool:
        """Whether the product is one of integers: not while calibrating or switched off."""
        if self.accumulator is None:
            return False
        return all(_quantises(q) for q in (self.input_quantizer, self.weight_quantizer))

    def extra_repr(self) -> str:
        text: str = super().extra_repr()  # type: ignore[misc]
        return text if self.accumulator is None else f"{text}, accumulator={self.accumulator}"


def _quantises(q: TensorQuantizer) -> bool:
    return q.is_enabled and q._if_quant and not q._if_calib


def integer_bits(layer: QuantLayer, q: TensorQuantizer) -> int:
    """Bits of a quantiser whose integers are multiplied.

    Raises:
        DescriptorError: for floats, blocks, learned amax, bias: they are no integers under one scale.
    """
    config = q.config
    plain = config.block_sizes is None and not config.learn_amax and q.bias is None and not config.rotate
    if not isinstance(config.num_bits, int) or not plain:
        asked = f"integer products with accumulator={layer.accumulator} of {q.extra_repr()}"
        allowed = "integers with an amax per tensor or axis"
        raise DescriptorError(message(asked, allowed, "Give the layer accumulator=None, or describe it so."))
    return config.num_bits


def amax_of(q: TensorQuantizer, x: Tensor) -> Tensor:
    """The amax that a quantiser uses for ``x``."""
    amax = None if q.config.type == "dynamic" else q.amax
    return largest_magnitude(x, q.axis) if amax is None else amax


class QuantLinear(QuantLayer, nn.Linear):
    """``nn.Linear`` of quantised operands.

    ``output_quantizer(linear(input_quantizer(x), weight_quantizer(weight), bias))``.
    With ``accumulator`` ("int(16, wrap)", any ``gemmsim.acc``), the integers themselves are multiplied and summed in
    it, and the scales taken off after (``int_linear``). Made from ``nn.Linear`` by ``quantize_``.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, in ``x``'s dtype."""
        if not self._uses_integers:
            return self.output_quantizer(functional.linear(self.input_quantizer(x), self.quantised_weight(), self.bias))
        scale = self.input_quantizer.pre_quant_scale
        x = x if scale is None else x * scale.to(x.dtype)
        bits = integer_bits(self, self.input_quantizer), integer_bits(self, self.weight_quantizer)
        assert self.accumulator is not None
        out = int_linear(
            x,
            self.weight,
            self.bias,
            input_amax=amax_of(self.input_quantizer, x),
            weight_amax=amax_of(self.weight_quantizer, self.weight),
            num_bits=bits,
            unsigned=self.input_quantizer.unsigned,
            narrow_range=(self.input_quantizer.narrow_range, self.weight_quantizer.narrow_range),
            accumulator=self.accumulator,
        )
        return self.output_quantizer(out)


class _QuantConv(QuantLayer):
    """Convolutions of quantised operands; with ``accumulator`` sums of the integers in it, scales taken off after."""

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, in ``x``'s dtype."""
        layer: Any = self
        if not self._uses_integers:
            out = layer._conv_forward(self.input_quantizer(x), self.quantised_weight(), layer.bias)
            return self.output_quantizer(out)
        scale = self.input_quantizer.pre_quant_scale
        x = x if scale is None else x * scale.to(x.dtype)
        integers = []
        for q, t in ((self.input_quantizer, x), (self.weight_quantizer, self.weight)):
            bits = integer_bits(self, q)
            integers.append(integer_values(t, amax_of(q, t), bits, q.unsigned, q.narrow_range))
        return self.output_quantizer(self._integer_sums(*integers).to(x.dtype))

    def _integer_sums(self, inputs: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]) -> Tensor:
        """The convolution of the integers over the product of their scales, and the bias in float32."""
        layer: Any = self
        (x, scale_x), (weight, scale_w) = inputs, weights
        assert self.accumulator is not None
        if scale_x.numel() != 1 or scale_w.numel() not in (1, weight.shape[0]):
            asked = f"integer convolution with scales {tuple(scale_x.shape)} and {tuple(scale_w.shape)}"
            allowed = "one for the input, one for each output channel of the weight"
            raise DescriptorError(message(asked, allowed, "Describe the input with axis=None, the weight with axis=0."))
        total = _CONVOLUTIONS[weight.dim() - 3](
            x,
            weight,
            None,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            product_formats(self.accumulator),
            padding_mode=layer.padding_mode,
            out_dtype=torch.float64,
        )
        spatial = [1] * (weight.dim() - 2)
        scales = scale_w.to(torch.float64).reshape(-1, *spatial) * scale_x.to(torch.float64).reshape(())
        out = (total / scales).to(torch.float32)
        return out if layer.bias is None else out + layer.bias.to(torch.float32).reshape(-1, *spatial)


class QuantConv1d(_QuantConv, nn.Conv1d):
    """``nn.Conv1d`` of quantised operands."""


class QuantConv2d(_QuantConv, nn.Conv2d):
    """``nn.Conv2d`` of quantised operands."""


class QuantConv3d(_QuantConv, nn.Conv3d):
    """``nn.Conv3d`` of quantised operands."""


#: Quantised layer of each plain one.
QUANTISED: dict[type, type] = {
    nn.Linear: QuantLinear,
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.Conv3d: QuantConv3d,
}


def convert(layer: nn.Module) -> Any:
    """``layer`` made quantised in place, with its quantisers disabled; its parameters stay the same objects."""
    layer.__class__ = QUANTISED[type(layer)]
    found: Any = layer
    found.accumulator = None
    device = next((p.device for p in layer.parameters()), torch.device("cpu"))
    for name in QUANTIZERS:
        setattr(found, name, TensorQuantizer(disabled=True).to(device))
    return found
