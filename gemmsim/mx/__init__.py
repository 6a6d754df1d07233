"""Block formats on tensors: OCP Microscaling (MXFP8, MXFP6, MXFP4, MXINT8) and NVFP4, bit for bit.

encoded = gemmsim.mx.encode(x, "mxfp8_e4m3")      # element codes and scale codes
gemmsim.mx.decode(encoded, "mxfp8_e4m3")
gemmsim.mx.quantize(x, "mxfp4")                   # both at once, in x's dtype
gemmsim.mx.matmul(a, b, "scaled(fp32)", a_format="mxfp8_e4m3", b_format="mxfp4")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .convert import Encoded as Encoded
    from .convert import decode as decode
    from .convert import encode as encode
    from .convert import quantize as quantize
    from .convert import tensor_scale as tensor_scale
    from .matmul import matmul as matmul
    from .plot import plot_formats as plot_formats
    from .swizzle import from_blocked as from_blocked
    from .swizzle import to_blocked as to_blocked
    from .table import format_table as format_table

_HOME = {
    "Encoded": "convert",
    "decode": "convert",
    "encode": "convert",
    "format_table": "table",
    "from_blocked": "swizzle",
    "matmul": "matmul",
    "plot_formats": "plot",
    "quantize": "convert",
    "tensor_scale": "convert",
    "to_blocked": "swizzle",
}

__all__ = [
    "Encoded",
    "decode",
    "encode",
    "format_table",
    "from_blocked",
    "matmul",
    "plot_formats",
    "quantize",
    "tensor_scale",
    "to_blocked",
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
