"""PyTorch operators: quantize, matrix products and linear layers, with gradients.

Each name is loaded on first use and then registers the operators that it needs with PyTorch: a first matrix product
does not load convolutions and row operations. ``gemmsim.load_operators`` registers all operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from . import errors as errors
    from . import last_run as last_run
    from .acceleration import cublas_acceleration as cublas_acceleration
    from .acceleration import cutlass_acceleration as cutlass_acceleration
    from .attention import QAttentionFormats as QAttentionFormats
    from .conv.convolution import qconv1d as qconv1d
    from .conv.convolution import qconv2d as qconv2d
    from .conv.convolution import qconv3d as qconv3d
    from .conv.convolution import qconv_transpose1d as qconv_transpose1d
    from .conv.convolution import qconv_transpose2d as qconv_transpose2d
    from .conv.convolution import qconv_transpose3d as qconv_transpose3d
    from .errors import DeviceError as DeviceError
    from .errors import DTypeError as DTypeError
    from .errors import ExportError as ExportError
    from .errors import GradError as GradError
    from .errors import OverlapError as OverlapError
    from .errors import SeedError as SeedError
    from .errors import ShapeError as ShapeError
    from .errors import ShardingError as ShardingError
    from .last_run import BackendRecord as BackendRecord
    from .last_run import last_backend as last_backend
    from .onnx import onnx_translations as onnx_translations
    from .product.affine_formats import QAffineFormats as QAffineFormats
    from .product.error_bound import Truth as Truth
    from .product.error_bound import truth as truth
    from .product.events import Events as Events
    from .product.events import count_events as count_events
    from .product.explanation import explain as explain
    from .product.format_warnings import FormatsWarning as FormatsWarning
    from .product.linear import qlinear as qlinear
    from .product.matmul import qmatmul as qmatmul
    from .product.matmul import qmm as qmm
    from .product.overflow import count_overflows as count_overflows
    from .quantization import quantize as quantize
    from .requantization import fixed_point_multiplier as fixed_point_multiplier
    from .requantization import requantize as requantize
    from .rowwise.formats import QGELUFormats as QGELUFormats
    from .rowwise.formats import QLayerNormFormats as QLayerNormFormats
    from .rowwise.formats import QSoftmaxFormats as QSoftmaxFormats
    from .seeds import Stream as Stream
    from .seeds import derive_seed as derive_seed
    from .straight_through import Quantizer as Quantizer
    from .straight_through import quantizer as quantizer
    from .torch_versions import TorchVersionError as TorchVersionError
    from .zero_points import integer_matmul as integer_matmul
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
