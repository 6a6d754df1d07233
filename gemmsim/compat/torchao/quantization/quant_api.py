"""``torchao.quantization.quant_api``: ``quantize_``."""

from torch import nn as _nn

from ..layers import quantize_ as quantize_


def _is_linear(mod: object, *args: object) -> bool:
    """Whether a module is a ``torch.nn.Linear``."""
    return isinstance(mod, _nn.Linear)
