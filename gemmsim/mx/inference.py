"""Linear layers that keep their weight in a block format."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn.emulated import Emulated
from gemmsim.ops import qmatmul
from gemmsim.ops.errors import message

from .configs import MXInferenceConfig
from .errors import MXOperatorError
from .linear import add_bias, work_dtype
from .products import product
from .tensor import MXTensor, to_mx

__all__ = ["MXInferenceLinear", "NVFP4InferenceLinear"]


class MXInferenceLinear(Emulated, nn.Linear):
    """``torch.nn.Linear`` whose ``weight`` is an ``MXTensor`` with blocks along the input features.

    With an activation format the input is encoded at each call; without, it is multiplied as it is. The weight has
    no gradient, and the layer gives none to its input. The bias is added in float32.

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
        """A layer with ``module``'s weight encoded, its own bias and its mode."""
        has_bias = module.bias is not None
        made = cls(module.in_features, module.out_features, has_bias, device="meta", config=config)
        made.bias = module.bias
        made._encode(module.weight)
        return made.train(module.training)

    def _encode(self, weight: Tensor) -> None:
        encoded = to_mx(weight.detach(), self.config.weight, act_format=self.config.activation)
        self.weight = nn.Parameter(encoded, requires_grad=False)

    @torch.no_grad()
    def forward(self, input: Tensor) -> Tensor:
        """``input @ weight.T + bias``, of shape (..., out_features).

        Raises:
            MXOperatorError: under torch.export, which takes no weight of codes.
            DTypeError, DeviceError, ShapeError: for inputs that do not fit.
        """
        if torch.compiler.is_exporting():
            asked = f"torch.export of {type(self).__name__}, whose weight is an MXTensor"
            do = "Take gemmsim.nn.QLinear with weight.dequantize() and the formats 'ACTIVATION * WEIGHT : ACCUMULATOR'."
            raise MXOperatorError(message(asked, "torch.compile, torch.fx, and export of MXLinear and QLinear", do))
        weight: Any = self.weight.t()
        rows = input.reshape(-1, input.shape[-1])
        dtype = torch.promote_types(input.dtype, self.weight.dtype)
        work = work_dtype(dtype, self.bias)
        accumulator = self.config.accumulator
        if self.config.activation is not None:
            encoded = rows if isinstance(rows, MXTensor) else to_mx(rows, self.config.activation)
            out = product(encoded, weight, accumulator, work)
        elif accumulator is None:
            out = (rows.to(dtype) @ weight.dequantize(dtype)).to(work)
        else:
            out = qmatmul(rows, weight.dequantize(torch.float32), f": {accumulator}", out_dtype=work)
        return add_bias(out, self.bias, dtype).reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Sizes and config."""
        return f"{super().extra_repr()}, config={self.config}"


class NVFP4InferenceLinear(MXInferenceLinear):
    """``MXInferenceLinear`` with weight and activations in ``nvfp4/tensor``."""

    default = MXInferenceConfig("nvfp4/tensor", "nvfp4/tensor")
