"""The module ``dmx.compressor.numerical.cast``."""

from ...cast_to import CastTo as CastTo
