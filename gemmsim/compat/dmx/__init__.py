"""d-Matrix's numerical formats: ``dmx.compressor.numerical.format`` by its names. dmx-compressor is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

if TYPE_CHECKING:
    from . import aliases as aliases
    from . import compressor as compressor
    from . import format as format
    from .bfp_ids import FormatIdError as FormatIdError
    from .blocks import MXFP as MXFP
    from .blocks import MXINT as MXINT
    from .blocks import BlockFloatingPoint as BlockFloatingPoint
    from .blocks import ScaledBlockFloatingPoint as ScaledBlockFloatingPoint
    from .cast_to import CastTo as CastTo
    from .histogram_observer import HistogramObserver as HistogramObserver
    from .observers import DummyObserver as DummyObserver
    from .observers import MinMaxObserver as MinMaxObserver
    from .shorthand import ROUNDING_MODE as ROUNDING_MODE
    from .single import FixedPoint as FixedPoint
    from .single import FloatingPoint as FloatingPoint
    from .single import Format as Format
    from .single import Same as Same
else:
    __getattr__, __dir__ = exports(__name__)
