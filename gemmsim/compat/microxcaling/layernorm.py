"""microxcaling's ``mx.layernorm``."""

from .norms import LayerNorm as LayerNorm
from .norms import RMSNorm as RMSNorm
from .norms import layer_norm as layer_norm
