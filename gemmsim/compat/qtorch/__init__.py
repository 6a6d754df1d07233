"""QPyTorch's names, defaults and errors on top of gemmsim's formats. qtorch is not needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import auto_low as auto_low
    from . import optim as optim
    from . import quant as quant
    from .functions import block_quantize as block_quantize
    from .functions import fixed_point_quantize as fixed_point_quantize
    from .functions import float_quantize as float_quantize
    from .number import BlockFloatingPoint as BlockFloatingPoint
    from .number import FixedPoint as FixedPoint
    from .number import FloatingPoint as FloatingPoint
    from .number import Number as Number
    from .optim import OptimLP as OptimLP
    from .quantizers import Quantizer as Quantizer
    from .quantizers import quantizer as quantizer

#: Public name -> module.
_NAMES = {
    "BlockFloatingPoint": "number",
    "FixedPoint": "number",
    "FloatingPoint": "number",
    "Number": "number",
    "OptimLP": "optim",
    "Quantizer": "quantizers",
    "block_quantize": "functions",
    "fixed_point_quantize": "functions",
    "float_quantize": "functions",
    "quantizer": "quantizers",
}

__all__ = [
    "BlockFloatingPoint",
    "FixedPoint",
    "FloatingPoint",
    "Number",
    "OptimLP",
    "Quantizer",
    "auto_low",
    "block_quantize",
    "fixed_point_quantize",
    "float_quantize",
    "optim",
    "quant",
    "quantizer",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a part on first use (PEP 562); ``auto_low``, ``optim`` and ``quant`` are modules, as in QPyTorch."""
        if name in ("auto_low", "optim", "quant"):
            return import_module(f".{name}", __name__)
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_NAMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
