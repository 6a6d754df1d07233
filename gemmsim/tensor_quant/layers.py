"""Layers with a quantiser for their input, their weight and their output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gemmsim.nn.conversion_report import stands_for

from .convolutions import (
    QuantConv1d,
    QuantConv2d,
    QuantConv3d,
    QuantConvTranspose1d,
    QuantConvTranspose2d,
    QuantConvTranspose3d,
)
from .integer_products import int_linear
from .layer_base import QUANTIZERS, QuantLayer, amax_of, integer_bits
from .quantizer import TensorQuantizer

__all__ = ["QUANTISED", "QUANTIZERS", "QuantLayer", "QuantLinear", "convert", "quantised_class"]


class QuantLinear(QuantLayer, nn.Linear):
    """``nn.Linear`` with quantised operands, which ``quantize_`` makes from ``nn.Linear``.

    It computes ``output_quantizer(linear(input_quantizer(x), weight_quantizer(weight), bias))``. With ``accumulator``
    ("int(16, wrap)", any ``gemmsim.acc``), it multiplies the integers themselves, sums them in that accumulator, and
    divides by the scales afterwards (``int_linear``).

    Example:
        >>> config = {"*input_quantizer": {}, "*weight_quantizer": {"axis": 0}}
        >>> gs.tensor_quant.quantize_(torch.nn.Linear(4, 2), config, spec="int(32)")
        QuantLinear(
          in_features=4, out_features=2, bias=True, accumulator=int(32)
          (input_quantizer): TensorQuantizer(8 bit axis=None amax=dynamic fake quant)
          (weight_quantizer): TensorQuantizer(8 bit axis=0 amax=dynamic fake quant)
          (output_quantizer): TensorQuantizer(disabled)
        )
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
            unsigned=(self.input_quantizer.unsigned, self.weight_quantizer.unsigned),
            narrow_range=(self.input_quantizer.narrow_range, self.weight_quantizer.narrow_range),
            spec=self.accumulator,
        )
        return self.output_quantizer(out)


#: Quantised layer of each plain one.
QUANTISED: dict[type, type] = {
    nn.Linear: QuantLinear,
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.Conv3d: QuantConv3d,
    nn.ConvTranspose1d: QuantConvTranspose1d,
    nn.ConvTranspose2d: QuantConvTranspose2d,
    nn.ConvTranspose3d: QuantConvTranspose3d,
}


def quantised_class(layer: nn.Module) -> type | None:
    """The quantised class of a plain layer; None of others, subclasses too but for PyTorch's that compute the same."""
    return next((made for plain, made in QUANTISED.items() if stands_for(layer, plain)), None)


def convert(layer: nn.Module) -> Any:
    """``layer`` made quantised in place, with its quantisers disabled; its parameters stay the same objects."""
    made = quantised_class(layer)
    assert made is not None
    layer.__class__ = made
    found: Any = layer
    found.accumulator = None
    device = next((p.device for p in layer.parameters()), torch.device("cpu"))
    for name in QUANTIZERS:
        setattr(found, name, TensorQuantizer(disabled=True).to(device))
    return found
