"""d-Matrix's numerical formats: ``dmx.compressor.numerical.format`` by its names. dmx-compressor is not needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


def __getattr__(name: str) -> Any:
    """Load a part on first use (PEP 562)."""
    if name in ("aliases", "compressor", "format"):
        return import_module(f".{name}", __name__)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_NAMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
