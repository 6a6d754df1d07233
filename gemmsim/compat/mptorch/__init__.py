"""mptorch's names on gemmsim: ``number``, ``quant``, ``optim``, ``utils``, with their argument orders and defaults.

``from gemmsim.compat import mptorch`` in place of ``import mptorch``. Results are gemmsim's: every step is rounded
once, the same on every device. docs/reference/compat/mptorch.md lists where that differs from mptorch 0.3.0.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import number as number
    from . import optim as optim
    from . import quant as quant
    from . import utils as utils
    from .number import Binary8 as Binary8
    from .number import BinaryK as BinaryK
    from .number import BlockFloatingPoint as BlockFloatingPoint
    from .number import FixedPoint as FixedPoint
    from .number import FloatingPoint as FloatingPoint
    from .number import FloatType as FloatType
    from .number import FormatError as FormatError
    from .number import Number as Number
    from .number import SuperNormalFloat as SuperNormalFloat

_MODULES = ("number", "optim", "quant", "utils")
_HOME = {
    "Binary8": "number",
    "BinaryK": "number",
    "BlockFloatingPoint": "number",
    "FixedPoint": "number",
    "FloatType": "number",
    "FloatingPoint": "number",
    "FormatError": "number",
    "Number": "number",
    "SuperNormalFloat": "number",
}

__all__ = [
    "Binary8",
    "BinaryK",
    "BlockFloatingPoint",
    "FixedPoint",
    "FloatType",
    "FloatingPoint",
    "FormatError",
    "Number",
    "SuperNormalFloat",
    "number",
    "optim",
    "quant",
    "utils",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a module or class on first use (PEP 562)."""
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
