"""microxcaling's ``mx.layernorm``."""

from __future__ import annotations

from .norms import LayerNorm as LayerNorm
from .norms import RMSNorm as RMSNorm
from .norms import layer_norm as layer_norm

__all__ = [
    "LayerNorm",
    "RMSNorm",
    "layer_norm",
]
