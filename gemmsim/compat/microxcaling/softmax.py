"""microxcaling's ``mx.softmax``."""

from __future__ import annotations

from .activations import Softmax as Softmax
from .activations import softmax as softmax
from .functions import SoftmaxFunction as SoftmaxFunction

__all__ = [
    "Softmax",
    "SoftmaxFunction",
    "softmax",
]
