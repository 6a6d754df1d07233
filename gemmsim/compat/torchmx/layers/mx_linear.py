"""torchmx's linear layer for inference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn import Emulated
from gemmsim.nn.weights import linear_like
from gemmsim.ops.lazy_dynamo import allow_in_graph

from ..config import QLinearConfig
from ..mx_tensor import MXTensor

__all__ = ["MXInferenceLinear"]


class MXInferenceLinear(Emulated, nn.Linear):
    """``torch.nn.Linear`` with the weight in MX; the input is encoded at each call.

    The input's gradient passes straight through its encoding: it is PyTorch's own product of the output's gradient and
    the decoded weight. The bias has PyTorch's gradient. In torchmx's layer neither has one. The weight has none.

    Example:
        >>> from gemmsim.compat.torchmx import config as c, quant_api
        >>> layer = quant_api.MXInferenceLinear.from_float(
        ...     torch.nn.Linear(32, 16), c.QLinearConfig(c.MXConfig("float6_e3m2"), c.MXConfig("float8_e4m3"))
        ... )
        >>> layer(torch.ones(1, 32)).shape, layer.weight.data._elem_dtype
        (torch.Size([1, 16]), float6_e3m2)
    """

    qconfig: QLinearConfig

    @classmethod
    @torch.no_grad()
    def from_float(cls, mod: nn.Linear, qconfig: QLinearConfig) -> MXInferenceLinear:
        """A layer with ``mod``'s weight encoded, its own bias and hooks.

        Raises:
            ComputedWeightError (TypeError): where a parametrisation or a hook computes the weight or the bias.
        """
        made = linear_like(cls, mod)
        weights = qconfig.weights_config
        encoded = MXTensor.to_mx(mod.weight.detach(), weights.elem_dtype, weights.block_size)
        made.weight, made.qconfig = nn.Parameter(encoded, requires_grad=False), qconfig
        return made

    def forward(self, x: Tensor) -> Tensor:
        """``F.linear`` of x in MX and the weight."""
        wanted = x.requires_grad or (self.bias is not None and self.bias.requires_grad)
        if torch.is_grad_enabled() and wanted:
            result: Tensor = _Frozen.apply(x, self.weight, self.bias, self.qconfig.activations_config)
            return result
        return _linear(x, self.weight, self.bias, self.qconfig.activations_config)

    def extra_repr(self) -> str:
        """Sizes and configuration."""
        return f"{super().extra_repr()}, qconfig={self.qconfig}"


def _linear(x: Tensor, weight: Any, bias: Tensor | None, activations: Any) -> Tensor:
    encoded = MXTensor.to_mx(x, activations.elem_dtype, activations.block_size)
    return nn.functional.linear(encoded, weight, bias)


@allow_in_graph
class _Frozen(torch.autograd.Function):
    """The layer's result, with gradients for input and bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Tensor | None, activations: Any) -> Tensor:
        """``F.linear`` of x in MX and the weight."""
        ctx.save_for_backward(weight)
        ctx.dtypes = x.dtype, None if bias is None else bias.dtype
        return _linear(x.detach(), weight.detach(), None if bias is None else bias.detach(), activations)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """``grad @ weight``, and the sum of ``grad`` over its rows."""
        (weight,), (grad,), (dtype, bias) = ctx.saved_tensors, grads, ctx.dtypes
        to_x = (grad @ weight.to_dtype(grad.dtype)).to(dtype) if ctx.needs_input_grad[0] else None
        to_bias = grad.flatten(0, -2).sum(0).to(bias) if bias is not None and ctx.needs_input_grad[2] else None
        return to_x, None, to_bias, None
