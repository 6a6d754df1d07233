"""The package ``dmx.compressor.numerical``."""

from .cast import CastTo
from .format import Format, Same

#: Whether d-Matrix's closed package of rules is installed: never here.
NUMERICS_UTILS_AVAILABLE = False

__all__ = ["NUMERICS_UTILS_AVAILABLE", "CastTo", "Format", "Same"]
