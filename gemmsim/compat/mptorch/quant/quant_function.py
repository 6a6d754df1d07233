"""The module ``mptorch.quant.quant_function``: roundings, products, and passes of softmax and layer norm."""

from .cublas import cublas_bmm, cublas_mm, match_mac_format_with_cublas_types
from .gemm import float_bmm, float_mm, fxp_bmm, fxp_mm, mp_bmm, mp_mm, superfp_bmm, superfp_mm
from .quantizers import (
    binary8_quantize,
    binaryK_quantize,
    block_quantize,
    fixed_point_quantize,
    float_quantize,
    make_quant_function,
    quantizer,
    superfp_quantize,
)
from .steps import *  # noqa: F403
from .steps import __all__ as _STEPS

__all__ = [
    "binary8_quantize",
    "binaryK_quantize",
    "block_quantize",
    "cublas_bmm",
    "cublas_mm",
    "fixed_point_quantize",
    "float_bmm",
    "float_mm",
    "float_quantize",
    "fxp_bmm",
    "fxp_mm",
    "make_quant_function",
    "match_mac_format_with_cublas_types",
    "mp_bmm",
    "mp_mm",
    "quantizer",
    "superfp_bmm",
    "superfp_mm",
    "superfp_quantize",
    *_STEPS,
]
