"""PyTorch operators: quantize, matrix products and linear layers, with gradients.

Importing this package registers the operators with PyTorch; ``import gemmsim`` alone does not.
"""

from .affine_formats import QAffineFormats
from .errors import DeviceError, DTypeError, GradError, OverlapError, SeedError, ShapeError
from .explain import explain
from .linear import qlinear
from .matmul import qmatmul, qmm
from .quantize import quantize
from .quantizer import Quantizer, quantizer
from .seeds import Stream, derive_seed
from .state import BackendRecord, last_backend

__all__ = [
    "BackendRecord",
    "DTypeError",
    "DeviceError",
    "GradError",
    "OverlapError",
    "QAffineFormats",
    "Quantizer",
    "SeedError",
    "ShapeError",
    "Stream",
    "derive_seed",
    "explain",
    "last_backend",
    "qlinear",
    "qmatmul",
    "qmm",
    "quantize",
    "quantizer",
]
