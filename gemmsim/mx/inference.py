"""Linear layers that keep their weight in a block format."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn.emulated_marker import Emulated
from gemmsim.nn.weights import linear_like
from gemmsim.ops.errors import message

from .configs import MXInferenceConfig, short_config
from .errors import MXOperatorError, refuse_no_weight
from .frozen import frozen_product
from .linear import add_bias, work_dtype
from .tensor import to_mx

__all__ = ["MXInferenceLinear", "NVFP4InferenceLinear"]


class MXInferenceLinear(Emulated, nn.Linear):
    """``torch.nn.Linear`` whose ``weight`` is an ``MXTensor`` with blocks along the input features.

    With an activation format the input is encoded at each call; without, it is multiplied as it is. The bias is added
    in float32.

    The input's gradient passes straight through its encoding: ``g @ weight``, of the weight's decoded values and g as
    it is, in float32 from the first term to the last (":fp32"; ":fp64" where g is float64), whatever the accumulator.
    Where that is None it is a native PyTorch product, too. The bias has PyTorch's gradient, the weight none.

    Args:
        in_features, out_features, bias, device, dtype: as ``torch.nn.Linear``.
        config: an ``MXInferenceConfig``, or the one block format of weight and activations.

    Raises:
        FormatError, SpecError: for a config that means nothing.
    """

    default = MXInferenceConfig()

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        config: MXInferenceConfig | str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.config = self.read_config(config)
        self._encode(self.weight)

    @classmethod
    def read_config(cls, config: MXInferenceConfig | str | None) -> MXInferenceConfig:
        """``config``, that of one format for weight and activations, or the class's default."""
        if config is None:
            return cls.default
        return config if isinstance(config, MXInferenceConfig) else MXInferenceConfig(config, config)

    @classmethod
    def from_float(cls, module: nn.Linear, config: MXInferenceConfig | str | None = None) -> MXInferenceLinear:
        """A layer with ``module``'s weight encoded, its own bias, hooks and mode.

        Raises:
            ComputedWeightError (TypeError): where a parametrisation or a hook computes the weight or the bias.
            MXConfigError: for a layer without a weight.
        """
        made = linear_like(cls, module, config=config)
        refuse_no_weight(f"{cls.__name__}.from_float", module)
        made._encode(module.weight)
        return made

    def _encode(self, weight: Tensor) -> None:
        encoded = to_mx(weight.detach(), self.config.weight, act_format=self.config.activation)
        self.weight = nn.Parameter(encoded, requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        """``input @ weight.T + bias``, of shape (..., out_features).

        Raises:
            MXOperatorError: under torch.export, which takes no weight of codes.
            GradError: in grad mode, for a weight that requires grad; for the derivative of a gradient.
            DTypeError, DeviceError, ShapeError: for inputs that do not fit.
        """
        if torch.compiler.is_exporting():
            asked = f"torch.export of {type(self).__name__}, whose weight is an MXTensor"
            do = "Take gemmsim.nn.QLinear with weight.dequantize() and the formats 'ACTIVATION * WEIGHT : ACCUMULATOR'."
            raise MXOperatorError(message(asked, "torch.compile, torch.fx, and export of MXLinear and QLinear", do))
        weight: Any = self.weight
        rows = input.reshape(-1, input.shape[-1])
        dtype = torch.promote_types(input.dtype, weight.dtype)
        how: Any = self.config
        out = frozen_product(rows, weight, how.activation, how.accumulator, work_dtype(dtype, self.bias), dtype)
        return add_bias(out, self.bias, dtype).reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Sizes, and the config in short."""
        return f"{super().extra_repr()}, config={short_config(self.config)}"


class NVFP4InferenceLinear(MXInferenceLinear):
    """``MXInferenceLinear`` with weight and activations in ``nvfp4/tensor``."""

    default = MXInferenceConfig("nvfp4/tensor", "nvfp4/tensor")
