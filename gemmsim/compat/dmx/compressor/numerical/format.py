"""The module ``dmx.compressor.numerical.format``."""

from ...format import (
    MXFP,
    MXINT,
    ROUNDING_MODE,
    BlockFloatingPoint,
    FixedPoint,
    FloatingPoint,
    Format,
    Same,
    ScaledBlockFloatingPoint,
)

#: Whether d-Matrix's closed package of rules is installed: never here.
NUMERICS_UTILS_AVAILABLE = False

__all__ = [
    "MXFP",
    "MXINT",
    "NUMERICS_UTILS_AVAILABLE",
    "ROUNDING_MODE",
    "BlockFloatingPoint",
    "FixedPoint",
    "FloatingPoint",
    "Format",
    "Same",
    "ScaledBlockFloatingPoint",
]
