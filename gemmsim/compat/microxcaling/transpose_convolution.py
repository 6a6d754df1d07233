"""microxcaling's ``mx.transpose_convolution``."""

from .convolutions import ConvTranspose2d as ConvTranspose2d
from .convolutions import conv_transpose2d as conv_transpose2d
