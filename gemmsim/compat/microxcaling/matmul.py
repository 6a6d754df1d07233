"""microxcaling's ``mx.matmul``."""

from __future__ import annotations

from .functions import MatMulFunction as MatMulFunction
from .gemms import matmul as matmul

__all__ = [
    "MatMulFunction",
    "matmul",
]
