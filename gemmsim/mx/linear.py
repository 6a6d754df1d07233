"""Linear layers whose products have operands in block formats, for training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn.emulated_marker import Emulated
from gemmsim.nn.weights import linear_like

from .configs import MXLinearConfig, short_config
from .errors import refuse_no_weight
from .training import trained_matmul

__all__ = ["MXLinear", "NVFP4Linear", "add_bias"]


def add_bias(product: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """``product + bias`` added in ``product``'s dtype, rounded to ``dtype``."""
    return (product if bias is None else product + bias.to(product.dtype)).to(dtype)


def work_dtype(dtype: torch.dtype, bias: Tensor | None) -> torch.dtype:
    """Dtype of a product to which ``bias`` is added: float32, or float64 where the result is; else the result's."""
    return dtype if bias is None or dtype == torch.float64 else torch.float32


class MXLinear(Emulated, nn.Linear):
    """``torch.nn.Linear`` whose three products have block-format operands (``MXLinearConfig``).

    ``x @ W.T`` encodes x and W along the input features. ``g @ W`` encodes g and W along the output features. ``g.T @
    x`` encodes both along the rows (all leading dimensions of x flattened). Each product encodes the high-precision
    tensors, so parameters, optimizers and state dicts are those of ``torch.nn.Linear``. The bias is added in float32;
    its gradient is PyTorch's sum.

    Args:
        in_features, out_features, bias, device, dtype: as ``torch.nn.Linear``.
        config: an ``MXLinearConfig``, or one block format for all operands.

    Raises:
        FormatError, SpecError: for a config with unknown formats or accumulators.

    Example:
        >>> layer = gs.mx.MXLinear(64, 16, config="mxfp8_e4m3")
        >>> layer(torch.ones(2, 64)).sum().backward()
        >>> layer.weight.grad.shape, list(layer.state_dict())
        (torch.Size([16, 64]), ['weight', 'bias'])
    """

    default = MXLinearConfig()

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        config: MXLinearConfig | str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.config = self.read_config(config)

    @classmethod
    def read_config(cls, config: MXLinearConfig | str | None) -> MXLinearConfig:
        """Return ``config``; for a format, the config with it for all operands; for None, the default of the class.

        Example:
            >>> gs.mx.MXLinear.read_config("mxfp4").grad, gs.mx.NVFP4Linear.read_config(None).grad
            ('mxfp4', 'nvfp4/tensor')
        """
        if config is None:
            return cls.default
        return config if isinstance(config, MXLinearConfig) else MXLinearConfig(config)

    @classmethod
    def from_float(cls, module: nn.Linear, config: MXLinearConfig | str | None = None) -> MXLinear:
        """Return a layer that has the parameters, hooks and mode of ``module`` itself; nothing is copied.

        Raises:
            ComputedWeightError (TypeError): if a parametrisation or a hook computes the weight or the bias.
            MXConfigError: for a layer without a weight.

        Example:
            >>> plain = torch.nn.Linear(64, 16)
            >>> gs.mx.MXLinear.from_float(plain, "mxfp8_e4m3").weight is plain.weight
            True
        """
        made = linear_like(cls, module, config=config)
        refuse_no_weight(f"{cls.__name__}.from_float", module)
        made.weight = module.weight
        return made

    def forward(self, input: Tensor) -> Tensor:
        """``input @ weight.T + bias``, of shape (..., out_features)."""
        rows = input.reshape(-1, input.shape[-1])
        dtype = torch.promote_types(input.dtype, self.weight.dtype)
        out = trained_matmul(rows, self.weight.t(), self.config, work_dtype(dtype, self.bias))
        return add_bias(out, self.bias, dtype).reshape(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Sizes, and the config in short."""
        return f"{super().extra_repr()}, config={short_config(self.config)}"


class NVFP4Linear(MXLinear):
    """``MXLinear`` with every operand in ``nvfp4/tensor``: blocks of 16, e4m3 scales, one float32 scale for the
    tensor.

    Example:
        >>> gs.mx.NVFP4Linear(64, 16)
        NVFP4Linear(in_features=64, out_features=16, bias=True, config='nvfp4/tensor')
    """

    default = MXLinearConfig("nvfp4/tensor")
