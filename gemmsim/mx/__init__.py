"""Block formats on tensors: OCP Microscaling (MXFP8, MXFP6, MXFP4, MXINT8) and NVFP4, bit for bit.

encoded = gemmsim.mx.encode(x, "mxfp8_e4m3")      # element codes and scale codes
gemmsim.mx.decode(encoded, "mxfp8_e4m3")
gemmsim.mx.quantize(x, "mxfp4")                   # both at once, in x's dtype
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .attention import mx_attention as mx_attention
    from .autograd import FromMX as FromMX
    from .autograd import NoopFwToMXBw as NoopFwToMXBw
    from .autograd import ToMX as ToMX
    from .autograd import requantize as requantize
    from .block_matmul import matmul as matmul
    from .code_table import format_table as format_table
    from .compare import compare_modes as compare_modes
    from .configs import MXAttentionConfig as MXAttentionConfig
    from .configs import MXInferenceConfig as MXInferenceConfig
    from .configs import MXLinearConfig as MXLinearConfig
    from .convert import Encoded as Encoded
    from .convert import decode as decode
    from .convert import encode as encode
    from .convert import quantize as quantize
    from .convert import tensor_scale as tensor_scale
    from .errors import BlockDimWarning as BlockDimWarning
    from .errors import MXConfigError as MXConfigError
    from .errors import MXFileError as MXFileError
    from .errors import MXOperatorError as MXOperatorError
    from .files import flatten_tensors as flatten_tensors
    from .files import load_file as load_file
    from .files import save_file as save_file
    from .files import unflatten_tensors as unflatten_tensors
    from .inference import MXInferenceLinear as MXInferenceLinear
    from .inference import NVFP4InferenceLinear as NVFP4InferenceLinear
    from .linear import MXLinear as MXLinear
    from .linear import NVFP4Linear as NVFP4Linear
    from .plot import plot_formats as plot_formats
    from .swap_linear import quantize_ as quantize_
    from .swap_linear import swap_linear_with_mx_inference_linear as swap_linear_with_mx_inference_linear
    from .swap_linear import swap_linear_with_mx_linear as swap_linear_with_mx_linear
    from .swizzle import from_blocked as from_blocked
    from .swizzle import to_blocked as to_blocked
    from .tensor import MXTensor as MXTensor
    from .tensor import dequantize_mx as dequantize_mx
    from .tensor import quantize_mx as quantize_mx
    from .tensor import to_mx as to_mx
    from .training import trained_matmul as trained_matmul
else:
    __getattr__, __dir__ = exports(__name__)
