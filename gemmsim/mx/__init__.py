"""Block formats on tensors: OCP Microscaling (MXFP8, MXFP6, MXFP4, MXINT8) and NVFP4, bit for bit.

encoded = gemmsim.mx.encode(x, "mxfp8_e4m3")      # element codes and scale codes
gemmsim.mx.decode(encoded, "mxfp8_e4m3")
gemmsim.mx.quantize(x, "mxfp4")                   # both at once, in x's dtype
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .autograd import FromMX as FromMX
    from .autograd import NoopFwToMXBw as NoopFwToMXBw
    from .autograd import ToMX as ToMX
    from .autograd import requantize as requantize
    from .convert import Encoded as Encoded
    from .convert import decode as decode
    from .convert import encode as encode
    from .convert import quantize as quantize
    from .convert import tensor_scale as tensor_scale
    from .errors import BlockDimWarning as BlockDimWarning
    from .errors import MXFileError as MXFileError
    from .errors import MXOperatorError as MXOperatorError
    from .files import flatten_tensors as flatten_tensors
    from .files import load_file as load_file
    from .files import save_file as save_file
    from .files import unflatten_tensors as unflatten_tensors
    from .plot import plot_formats as plot_formats
    from .products import product as product
    from .swizzle import from_blocked as from_blocked
    from .swizzle import to_blocked as to_blocked
    from .table import format_table as format_table
    from .tensor import MXTensor as MXTensor
    from .tensor import dequantize_mx as dequantize_mx
    from .tensor import quantize_mx as quantize_mx
    from .tensor import to_mx as to_mx

_HOME = {
    "BlockDimWarning": "errors",
    "Encoded": "convert",
    "FromMX": "autograd",
    "MXFileError": "errors",
    "MXOperatorError": "errors",
    "MXTensor": "tensor",
    "NoopFwToMXBw": "autograd",
    "ToMX": "autograd",
    "decode": "convert",
    "dequantize_mx": "tensor",
    "encode": "convert",
    "flatten_tensors": "files",
    "format_table": "table",
    "from_blocked": "swizzle",
    "load_file": "files",
    "plot_formats": "plot",
    "product": "products",
    "quantize": "convert",
    "quantize_mx": "tensor",
    "requantize": "autograd",
    "save_file": "files",
    "tensor_scale": "convert",
    "to_blocked": "swizzle",
    "to_mx": "tensor",
    "unflatten_tensors": "files",
}

__all__ = [
    "BlockDimWarning",
    "Encoded",
    "FromMX",
    "MXFileError",
    "MXOperatorError",
    "MXTensor",
    "NoopFwToMXBw",
    "ToMX",
    "decode",
    "dequantize_mx",
    "encode",
    "flatten_tensors",
    "format_table",
    "from_blocked",
    "load_file",
    "plot_formats",
    "product",
    "quantize",
    "quantize_mx",
    "requantize",
    "save_file",
    "tensor_scale",
    "to_blocked",
    "to_mx",
    "unflatten_tensors",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
