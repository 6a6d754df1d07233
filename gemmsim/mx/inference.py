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

    With an activation format, the input is encoded at each call; without one, it is multiplied unencoded. The bias is
    added in float32.

    The gradient of the input passes straight through its encoding: ``g @ weight`` with the decoded values of the
    weight and with g unencoded. It is summed sequentially in float32 (":fp32"; ":fp64" if g is float64), whatever the
    accumulator. If the accumulator is None, the gradient is PyTorch's own product, too. The bias has PyTorch's
    gradient, and the weight has none.

    Args:
        in_features, out_features, bias, device, dtype: as ``torch.nn.Linear``.
        config: an ``MXInferenceConfig``, or one block format for weight and activations.

    Raises:
        FormatError, SpecError: for a config with unknown formats or accumulators.

    Example:
        >>> layer = gs.mx.MXInferenceLinear(64, 16, config="mxfp4")
        >>> layer(torch.ones(2, 64)).shape, layer.weight.shape, layer.weight.codes.shape
        (torch.Size([2, 16]), torch.Size([16, 64]), torch.Size([16, 32]))
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
        """Return ``config``; for a format, the config with it for weight and activations; for None, the default of
        the class.

        Example:
            >>> gs.mx.NVFP4InferenceLinear.read_config(None)
            MXInferenceConfig(weight='nvfp4/tensor', activation='nvfp4/tensor', accumulator='e8m23')
        """
        if config is None:
            return cls.default
        return config if isinstance(config, MXInferenceConfig) else MXInferenceConfig(config, config)

    @classmethod
    def from_float(cls, module: nn.Linear, config: MXInferenceConfig | str | None = None) -> MXInferenceLinear:
        """Return a layer with the encoded weight of ``module``, and with the bias, hooks and mode of ``module``
        itself.

        Raises:
            ComputedWeightError (TypeError): if a parametrisation or a hook computes the weight or the bias.
            MXConfigError: for a layer without a weight.

        Example:
            >>> plain = torch.nn.Linear(64, 16)
            >>> layer = gs.mx.MXInferenceLinear.from_float(plain, gs.mx.MXInferenceConfig("mxfp4", activation=None))
            >>> torch.equal(layer.weight.dequantize(), gs.mx.quantize(plain.weight.detach(), "mxfp4"))
            True
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
    """``MXInferenceLinear`` with weight and activations in ``nvfp4/tensor``.

    Example:
        >>> gs.mx.NVFP4InferenceLinear(64, 16).weight.scales.shape  # blocks of 16 along the input features
        torch.Size([16, 4])
    """

    default = MXInferenceConfig("nvfp4/tensor", "nvfp4/tensor")
