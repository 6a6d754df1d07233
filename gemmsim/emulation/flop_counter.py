"""Registers FLOP formulas of this package's products for ``torch.utils.flop_counter.FlopCounterMode``.

A multiply-add counts as two. A counter knows the formulas that are registered when it is made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

from . import gemmsim_products  # noqa: F401  # registers operators and their shapes
from .aten_products import leaves

__all__ = ["register"]

_OPERATORS = ("matmul", "matmul_with_operands", "conv", "conv_with_operands", "conv_weight", "mx_mm")


def register() -> None:
    """Registers the formulas, once."""
    for name in _OPERATORS:
        packet = getattr(torch.ops.gemmsim, name)
        if packet not in flop_registry:
            register_flop_formula(packet, get_raw=True)(_formula(packet.default))


def _formula(operator: Any) -> Any:
    def flops(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return 2 * sum(leaf.macs for leaf in leaves(operator, args, kwargs) or ())

    return flops


register()
