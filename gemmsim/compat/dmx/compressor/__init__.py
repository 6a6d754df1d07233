"""The package ``dmx.compressor``: formats by name, and what computes with them."""

from .. import format as format
from . import numerical as numerical
from . import quant as quant
from .numerical import NUMERICS_UTILS_AVAILABLE, Format

__all__ = ["NUMERICS_UTILS_AVAILABLE", "Format", "format", "numerical", "quant"]
