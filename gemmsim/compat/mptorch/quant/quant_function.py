"""The module ``mptorch.quant.quant_function``: roundings, products, and passes of softmax and layer norm."""

from .cublas import cublas_bmm as cublas_bmm
from .cublas import cublas_mm as cublas_mm
from .cublas import match_mac_format_with_cublas_types as match_mac_format_with_cublas_types
from .gemm import float_bmm as float_bmm
from .gemm import float_mm as float_mm
from .gemm import fxp_bmm as fxp_bmm
from .gemm import fxp_mm as fxp_mm
from .gemm import mp_bmm as mp_bmm
from .gemm import mp_mm as mp_mm
from .gemm import superfp_bmm as superfp_bmm
from .gemm import superfp_mm as superfp_mm
from .quantizers import binary8_quantize as binary8_quantize
from .quantizers import binaryK_quantize as binaryK_quantize
from .quantizers import block_quantize as block_quantize
from .quantizers import fixed_point_quantize as fixed_point_quantize
from .quantizers import float_quantize as float_quantize
from .quantizers import make_quant_function as make_quant_function
from .quantizers import quantizer as quantizer
from .quantizers import superfp_quantize as superfp_quantize
from .steps import *  # noqa: F403
