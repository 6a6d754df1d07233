"""microxcaling's ``mx.transpose_convolution``."""

from __future__ import annotations

from .convolutions import ConvTranspose2d as ConvTranspose2d
from .convolutions import conv_transpose2d as conv_transpose2d

__all__ = [
    "ConvTranspose2d",
    "conv_transpose2d",
]
