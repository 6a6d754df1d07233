"""The module ``dmx.compressor.numerical.format``: classes, and published formats by name (``format.BFP16_64``)."""

from __future__ import annotations

from .aliases import ALIASES
from .blocks import MXFP, MXINT, BlockFloatingPoint, ScaledBlockFloatingPoint
from .shorthand import ROUNDING_MODE
from .single import FixedPoint, FloatingPoint, Format, Same

__all__ = [
    "MXFP",
    "MXINT",
    "ROUNDING_MODE",
    "BlockFloatingPoint",
    "FixedPoint",
    "FloatingPoint",
    "Format",
    "Same",
    "ScaledBlockFloatingPoint",
]


def __getattr__(name: str) -> Format:
    """A published format."""
    if name not in ALIASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return ALIASES[name]


def __dir__() -> list[str]:
    return sorted([*__all__, *ALIASES])
