"""PyTorch operators: quantize, matrix products and linear layers, with gradients.

Importing this package registers the operators with PyTorch; ``import gemmsim`` alone does not.
"""

from .acceleration import cublas_acceleration
from .conv.convolution import qconv1d, qconv2d, qconv3d, qconv_transpose1d, qconv_transpose2d, qconv_transpose3d
from .errors import DeviceError, DTypeError, ExportError, GradError, OverlapError, SeedError, ShapeError, ShardingError
from .onnx import onnx_translations
from .product.affine_formats import QAffineFormats
from .product.attention import QAttentionFormats
from .product.events import Events, count_events
from .product.explanation import explain
from .product.linear import qlinear
from .product.matmul import qmatmul, qmm
from .product.overflow import count_overflows
from .product.readings import FormatsWarning
from .quantization import quantize
from .rows.formats import QGELUFormats, QLayerNormFormats, QSoftmaxFormats
from .seeds import Stream, derive_seed
from .state import BackendRecord, last_backend
from .straight_through import Quantizer, quantizer

__all__ = [
    "BackendRecord",
    "DTypeError",
    "DeviceError",
    "Events",
    "ExportError",
    "FormatsWarning",
    "GradError",
    "OverlapError",
    "QAffineFormats",
    "QAttentionFormats",
    "QGELUFormats",
    "QLayerNormFormats",
    "QSoftmaxFormats",
    "Quantizer",
    "SeedError",
    "ShapeError",
    "ShardingError",
    "Stream",
    "count_events",
    "count_overflows",
    "cublas_acceleration",
    "derive_seed",
    "explain",
    "last_backend",
    "onnx_translations",
    "qconv1d",
    "qconv2d",
    "qconv3d",
    "qconv_transpose1d",
    "qconv_transpose2d",
    "qconv_transpose3d",
    "qlinear",
    "qmatmul",
    "qmm",
    "quantize",
    "quantizer",
]
