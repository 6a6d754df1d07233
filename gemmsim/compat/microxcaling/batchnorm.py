"""microxcaling's ``mx.batchnorm``."""

from .norms import BatchNorm1d as BatchNorm1d
from .norms import BatchNorm2d as BatchNorm2d
from .norms import BatchNorm3d as BatchNorm3d
from .norms import batch_norm as batch_norm
