"""microxcaling's ``mx.bmm``."""

from __future__ import annotations

from .functions import BMMFunction as BMMFunction
from .gemms import bmm as bmm

__all__ = [
    "BMMFunction",
    "bmm",
]
