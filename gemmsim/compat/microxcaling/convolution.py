"""microxcaling's ``mx.convolution``."""

from .convolutions import Conv1d as Conv1d
from .convolutions import Conv2d as Conv2d
from .convolutions import Conv3d as Conv3d
from .convolutions import conv1d as conv1d
from .convolutions import conv2d as conv2d
from .convolutions import conv3d as conv3d
