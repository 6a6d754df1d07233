"""microxcaling's ``mx.groupnorm``."""

from .norms import GroupNorm as GroupNorm
from .norms import group_norm as group_norm
