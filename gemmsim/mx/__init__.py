"""Block formats on tensors: OCP Microscaling (MXFP8, MXFP6, MXFP4, MXINT8) and NVFP4, bit for bit.

encoded = gemmsim.mx.encode(x, "mxfp8_e4m3")      # element codes and scale codes
gemmsim.mx.decode(encoded, "mxfp8_e4m3")
gemmsim.mx.quantize(x, "mxfp4")                   # both at once, in x's dtype
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attention import mx_attention as mx_attention
    from .autograd import FromMX as FromMX
    from .autograd import NoopFwToMXBw as NoopFwToMXBw
    from .autograd import ToMX as ToMX
    from .autograd import requantize as requantize
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
    from .multiply import matmul as matmul
    from .plot import plot_formats as plot_formats
    from .swap import quantize_ as quantize_
    from .swap import swap_linear_with_mx_inference_linear as swap_linear_with_mx_inference_linear
    from .swap import swap_linear_with_mx_linear as swap_linear_with_mx_linear
    from .swizzle import from_blocked as from_blocked
    from .swizzle import to_blocked as to_blocked
    from .table import format_table as format_table
    from .tensor import MXTensor as MXTensor
    from .tensor import dequantize_mx as dequantize_mx
    from .tensor import quantize_mx as quantize_mx
    from .tensor import to_mx as to_mx
    from .training import trained_matmul as trained_matmul

_HOME = {
    "BlockDimWarning": "errors",
    "Encoded": "convert",
    "FromMX": "autograd",
    "MXAttentionConfig": "configs",
    "MXConfigError": "errors",
    "MXFileError": "errors",
    "MXInferenceConfig": "configs",
    "MXInferenceLinear": "inference",
    "MXLinear": "linear",
    "MXLinearConfig": "configs",
    "MXOperatorError": "errors",
    "MXTensor": "tensor",
    "NVFP4InferenceLinear": "inference",
    "NVFP4Linear": "linear",
    "NoopFwToMXBw": "autograd",
    "ToMX": "autograd",
    "compare_modes": "compare",
    "decode": "convert",
    "dequantize_mx": "tensor",
    "encode": "convert",
    "flatten_tensors": "files",
    "format_table": "table",
    "from_blocked": "swizzle",
    "load_file": "files",
    "matmul": "multiply",
    "mx_attention": "attention",
    "plot_formats": "plot",
    "quantize": "convert",
    "quantize_": "swap",
    "quantize_mx": "tensor",
    "requantize": "autograd",
    "save_file": "files",
    "swap_linear_with_mx_inference_linear": "swap",
    "swap_linear_with_mx_linear": "swap",
    "tensor_scale": "convert",
    "to_blocked": "swizzle",
    "to_mx": "tensor",
    "trained_matmul": "training",
    "unflatten_tensors": "files",
}

__all__ = [
    "BlockDimWarning",
    "Encoded",
    "FromMX",
    "MXAttentionConfig",
    "MXConfigError",
    "MXFileError",
    "MXInferenceConfig",
    "MXInferenceLinear",
    "MXLinear",
    "MXLinearConfig",
    "MXOperatorError",
    "MXTensor",
    "NVFP4InferenceLinear",
    "NVFP4Linear",
    "NoopFwToMXBw",
    "ToMX",
    "compare_modes",
    "decode",
    "dequantize_mx",
    "encode",
    "flatten_tensors",
    "format_table",
    "from_blocked",
    "load_file",
    "matmul",
    "mx_attention",
    "plot_formats",
    "quantize",
    "quantize_",
    "quantize_mx",
    "requantize",
    "save_file",
    "swap_linear_with_mx_inference_linear",
    "swap_linear_with_mx_linear",
    "tensor_scale",
    "to_blocked",
    "to_mx",
    "trained_matmul",
    "unflatten_tensors",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a public name on first use (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
