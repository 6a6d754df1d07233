"""``modelopt.torch.quantization.nn.modules.quant_linear``."""

from __future__ import annotations

from typing import Any

from torch import nn

from gemmsim import tensor_quant
from gemmsim.tensor_quant import TensorQuantizer

from .quant_module import QuantLinearConvBase, QuantModuleRegistry, fold_weights

__all__ = ["Linear", "Made", "QuantLinear"]


class Made:
    """``nn.Module.__init__`` of a quantised class: the plain one's arguments, and descriptions of the quantisers."""

    default_quant_desc_input: Any = tensor_quant.QUANT_DESC_8BIT_PER_TENSOR
    default_quant_desc_weight: Any = tensor_quant.QUANT_DESC_8BIT_PER_TENSOR
    default_quant_desc_output: Any = tensor_quant.QUANT_DESC_8BIT_PER_TENSOR
    accumulator: str | None

    def __init__(self, *args: Any, quant_desc_input: Any = None, quant_desc_weight: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._setup(quant_desc_input, quant_desc_weight)

    def _setup(self, inputs: Any = None, weight: Any = None) -> None:
        self.accumulator = None
        self.input_quantizer = TensorQuantizer(self.default_quant_desc_input if inputs is None else inputs)
        self.weight_quantizer = TensorQuantizer(self.default_quant_desc_weight if weight is None else weight)
        self.output_quantizer = TensorQuantizer(self.default_quant_desc_output, disabled=True)

    def fold_weight(self) -> None:
        """As the function ``fold_weight``."""
        fold_weights(self)  # type: ignore[arg-type]


QuantLinearConvBase.register(Made)


@QuantModuleRegistry.register({nn.Linear: "nn.Linear"})
class QuantLinear(Made, tensor_quant.QuantLinear):
    """``gemmsim.tensor_quant.QuantLinear`` with quantisers of 8 bits by default: one amax for inputs, one for each row.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.nn.QuantLinear(4, 2, bias=False)
        >>> layer(torch.ones(1, 4)).shape, layer.weight_quantizer.axis
        (torch.Size([1, 2]), 0)
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW


#: The same by the plain class's name.
Linear = QuantLinear
