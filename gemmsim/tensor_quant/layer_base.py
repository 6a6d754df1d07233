"""What layers with a quantiser for their input, their weight and their output share."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.nn.emulated_marker import Emulated

from .errors import DescriptorError, ExportError, message
from .max_calibrator import largest_magnitude
from .quantizer import TensorQuantizer

__all__ = ["QUANTIZERS", "QuantLayer", "amax_of", "integer_bits"]

QUANTIZERS = ("input_quantizer", "weight_quantizer", "output_quantizer")


class QuantLayer(Emulated):
    """Base class of quantised layers: three quantisers, and the accumulator of integer products (None: PyTorch's
    own).

    Example:
        >>> layer = gs.tensor_quant.quantize_(torch.nn.Linear(4, 2), {"*weight_quantizer": {"axis": 0}})
        >>> isinstance(layer, gs.tensor_quant.QuantLayer), [name for name, _ in layer.named_children()]
        (True, ['input_quantizer', 'weight_quantizer', 'output_quantizer'])
    """

    input_quantizer: TensorQuantizer
    weight_quantizer: TensorQuantizer
    output_quantizer: TensorQuantizer
    weight: Tensor
    accumulator: str | None

    @property
    def spec(self) -> str | None:
        """``accumulator``, under the name of the argument that sets it.

        Example:
            >>> layer = gs.tensor_quant.quantize_(torch.nn.Linear(4, 2), {"*_quantizer": {}}, spec="int(32)")
            >>> layer.spec
            'int(32)'
        """
        return self.accumulator

    @spec.setter
    def spec(self, value: str | None) -> None:
        self.accumulator = value

    def _is_torchs_own(self) -> bool:
        return True  # or refused by what it calls

    def quantised_weight(self) -> Tensor:
        """Return the weight with which the layer multiplies.

        Example:
            >>> layer = torch.nn.Linear(1, 2, bias=False)
            >>> layer.weight.data = torch.tensor([[0.3], [2.0]])
            >>> gs.tensor_quant.quantize_(layer, {"*weight_quantizer": {"num_bits": 4}}).quantised_weight().detach()
            tensor([[0.2857],
                    [2.0000]])
        """
        return self.weight_quantizer(self.weight)

    @property
    def _uses_integers(self) -> bool:
        """Whether the product is one of integers: not while calibrating or switched off.

        Raises:
            DescriptorError: where one side alone is quantised, which has no product of integers.
            ExportError: during ONNX export.
        """
        if self.accumulator is None:
            return False
        x, w = self.input_quantizer, self.weight_quantizer
        if torch.onnx.is_in_onnx_export():
            asked = f"ONNX export of a layer with accumulator={self.accumulator}"
            raise ExportError(
                message(asked, "accumulator=None: ONNX has no emulated registers", "Set it to None first.")
            )
        if x.is_enabled != w.is_enabled:
            asked = f"accumulator={self.accumulator} with the {'input' if x.is_enabled else 'weight'} alone quantised"
            allowed = "integers on both sides, or neither side quantised"
            raise DescriptorError(message(asked, allowed, "Describe both, or give the layer accumulator=None."))
        return _quantises(x) and _quantises(w)

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
    plain = (
        config.block_sizes is None
        and not config.learn_amax
        and q.bias is None
        and config.bias is None
        and not config.rotate
    )
    if not isinstance(config.num_bits, int) or not plain:
        asked = f"integer products with accumulator={layer.accumulator} of {q.extra_repr()}"
        allowed = "integers with an amax per tensor or axis"
        raise DescriptorError(message(asked, allowed, "Give the layer accumulator=None, or describe it so."))
    return config.num_bits


def amax_of(q: TensorQuantizer, x: Tensor) -> Tensor:
    """The amax that a quantiser uses for ``x``."""
    amax = None if q.config.type == "dynamic" else q.amax
    amax = largest_magnitude(x, q.axis) if amax is None else amax
    return amax if q._scale_amax is None else amax * q._scale_amax
