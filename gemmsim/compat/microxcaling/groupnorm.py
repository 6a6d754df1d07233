"""microxcaling's ``mx.groupnorm``."""

from __future__ import annotations

from .norms import GroupNorm as GroupNorm
from .norms import group_norm as group_norm

__all__ = [
    "GroupNorm",
    "group_norm",
]
