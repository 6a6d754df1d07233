"""torchmx's linear layer for inference."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gemmsim.nn import Emulated

from ..config import QLinearConfig
from ..mx_tensor import MXTensor

__all__ = ["MXInferenceLinear"]


class MXInferenceLinear(Emulated, nn.Linear):
    """``torch.nn.Linear`` with the weight in MX, whose input is encoded at each call; no gradients."""

    qconfig: QLinearConfig

    @classmethod
    @torch.no_grad()
    def from_float(cls, mod: nn.Linear, qconfig: QLinearConfig) -> MXInferenceLinear:
        """A layer with ``mod``'s weight encoded and its own bias."""
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, device="meta")
        weights = qconfig.weights_config
        encoded = MXTensor.to_mx(mod.weight.detach(), weights.elem_dtype, weights.block_size)
        made.weight, made.bias, made.qconfig = nn.Parameter(encoded, requires_grad=False), mod.bias, qconfig
        return made.train(mod.training)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """``F.linear`` of x in MX and the weight."""
        activations = self.qconfig.activations_config
        encoded = MXTensor.to_mx(x, activations.elem_dtype, activations.block_size)
        return nn.functional.linear(encoded, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and configuration."""
        return f"{super().extra_repr()}, qconfig={self.qconfig}"
