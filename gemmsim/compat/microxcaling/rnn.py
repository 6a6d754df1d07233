"""microxcaling's ``mx.rnn``."""

from __future__ import annotations

from .lstm import LSTM as LSTM

__all__ = [
    "LSTM",
]
