"""microxcaling's ``mx.linear``."""

from __future__ import annotations

from .functions import LinearFunction as LinearFunction
from .gemms import Linear as Linear
from .gemms import linear as linear

__all__ = [
    "Linear",
    "LinearFunction",
    "linear",
]
