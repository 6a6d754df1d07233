"""d-Matrix's numerical formats: ``dmx.compressor.numerical.format`` by its names. dmx-compressor is not needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import aliases as aliases
    from . import compressor as compressor
    from . import format as format
    from .blocks import MXFP as MXFP
    from .blocks import MXINT as MXINT
    from .blocks import BlockFloatingPoint as BlockFloatingPoint
    from .blocks import ScaledBlockFloatingPoint as ScaledBlockFloatingPoint
    from .cast_to import CastTo as CastTo
    from .shorthand import ROUNDING_MODE as ROUNDING_MODE
    from .single import FixedPoint as FixedPoint
    from .single import FloatingPoint as FloatingPoint
    from .single import Format as Format
    from .single import Same as Same

#: Public name -> module.
_NAMES = {
    "BlockFloatingPoint": "blocks",
    "CastTo": "cast_to",
    "FixedPoint": "single",
    "FloatingPoint": "single",
    "Format": "single",
    "MXFP": "blocks",
    "MXINT": "blocks",
    "ROUNDING_MODE": "shorthand",
    "Same": "single",
    "ScaledBlockFloatingPoint": "blocks",
}

__all__ = [
    "BlockFloatingPoint",
    "CastTo",
    "FixedPoint",
    "FloatingPoint",
    "Format",
    "MXFP",
    "MXINT",
    "ROUNDING_MODE",
    "Same",
    "ScaledBlockFloatingPoint",
    "aliases",
    "compressor",
    "format",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a part on first use (PEP 562)."""
        if name in ("aliases", "compressor", "format"):
            return import_module(f".{name}", __name__)
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_NAMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
