"""mptorch.quant: functions that round tensors, matrix products, formats of operations, modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._lazy import exports

if TYPE_CHECKING:
    from . import functional as functional
    from . import modules as modules
    from . import quant_format as quant_format
    from . import quant_function as quant_function
    from .cublas import CUBLASComputeType as CUBLASComputeType
    from .cublas import CUBLASMatrixType as CUBLASMatrixType
    from .cublas import cublas_acceleration as cublas_acceleration
    from .cublas import cublas_bmm as cublas_bmm
    from .cublas import cublas_mm as cublas_mm
    from .cublas import match_mac_format_with_cublas_types as match_mac_format_with_cublas_types
    from .formats import QAffineFormats as QAffineFormats
    from .formats import QGELUFormats as QGELUFormats
    from .formats import QLayerNormFormats as QLayerNormFormats
    from .formats import QSoftmaxFormats as QSoftmaxFormats
    from .functional import qadd as qadd
    from .functional import qdiv as qdiv
    from .functional import qgelu as qgelu
    from .functional import qlayernorm as qlayernorm
    from .functional import qlinear as qlinear
    from .functional import qmatmul as qmatmul
    from .functional import qmean as qmean
    from .functional import qmm as qmm
    from .functional import qmul as qmul
    from .functional import qpow as qpow
    from .functional import qsoftmax as qsoftmax
    from .functional import qsqrt as qsqrt
    from .functional import qsum as qsum
    from .gemm import float_bmm as float_bmm
    from .gemm import float_mm as float_mm
    from .gemm import fxp_bmm as fxp_bmm
    from .gemm import fxp_mm as fxp_mm
    from .gemm import mp_bmm as mp_bmm
    from .gemm import mp_mm as mp_mm
    from .gemm import superfp_bmm as superfp_bmm
    from .gemm import superfp_mm as superfp_mm
    from .modules import QGELU as QGELU
    from .modules import QAvgPool2d as QAvgPool2d
    from .modules import QBatchNorm as QBatchNorm
    from .modules import QBatchNorm1d as QBatchNorm1d
    from .modules import QBatchNorm2d as QBatchNorm2d
    from .modules import QConv1d as QConv1d
    from .modules import QConv2d as QConv2d
    from .modules import QConv3d as QConv3d
    from .modules import QConvTranspose1d as QConvTranspose1d
    from .modules import QConvTranspose2d as QConvTranspose2d
    from .modules import QConvTranspose3d as QConvTranspose3d
    from .modules import QLayerNorm as QLayerNorm
    from .modules import QLazyLinear as QLazyLinear
    from .modules import QLinear as QLinear
    from .modules import QSoftmax as QSoftmax
    from .quantizers import Quantizer as Quantizer
    from .quantizers import binary8_quantize as binary8_quantize
    from .quantizers import binaryK_quantize as binaryK_quantize
    from .quantizers import block_quantize as block_quantize
    from .quantizers import fixed_point_quantize as fixed_point_quantize
    from .quantizers import float_quantize as float_quantize
    from .quantizers import make_quant_function as make_quant_function
    from .quantizers import quantizer as quantizer
    from .quantizers import superfp_quantize as superfp_quantize
    from .steps import binary8_layernorm_backward as binary8_layernorm_backward
    from .steps import binary8_layernorm_forward as binary8_layernorm_forward
    from .steps import binary8_softmax_backward as binary8_softmax_backward
    from .steps import binary8_softmax_forward as binary8_softmax_forward
    from .steps import binary8_softmax_lse_forward as binary8_softmax_lse_forward
    from .steps import float_layernorm_backward as float_layernorm_backward
    from .steps import float_layernorm_forward as float_layernorm_forward
    from .steps import float_softmax_backward as float_softmax_backward
    from .steps import float_softmax_forward as float_softmax_forward
    from .steps import float_softmax_lse_forward as float_softmax_lse_forward
    from .steps import superfp_layernorm_backward as superfp_layernorm_backward
    from .steps import superfp_layernorm_forward as superfp_layernorm_forward
    from .steps import superfp_softmax_backward as superfp_softmax_backward
    from .steps import superfp_softmax_forward as superfp_softmax_forward
    from .steps import superfp_softmax_lse_forward as superfp_softmax_lse_forward
else:
    __getattr__, __dir__ = exports(__name__)
