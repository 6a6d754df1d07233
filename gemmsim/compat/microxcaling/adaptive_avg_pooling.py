"""microxcaling's ``mx.adaptive_avg_pooling``."""

from __future__ import annotations

from .pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pooling import adaptive_avg_pool2d as adaptive_avg_pool2d

__all__ = [
    "AdaptiveAvgPool2d",
    "adaptive_avg_pool2d",
]
