"""microxcaling's ``mx.matmul``."""

from .functions import MatMulFunction as MatMulFunction
from .gemms import matmul as matmul
