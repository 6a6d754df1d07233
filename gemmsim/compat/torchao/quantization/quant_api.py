"""``torchao.quantization.quant_api``: ``quantize_``."""

from __future__ import annotations

from torch import nn

from ..layers import quantize_ as quantize_


def _is_linear(mod: object, *args: object) -> bool:
    """Whether a module is a ``torch.nn.Linear``."""
    return isinstance(mod, nn.Linear)


__all__ = [
    "quantize_",
]
