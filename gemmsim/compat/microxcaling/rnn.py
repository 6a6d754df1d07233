"""microxcaling's ``mx.rnn``."""

from .lstm import LSTM as LSTM
