"""The module ``dmx.compressor.numerical.format``."""

from ...format import MXFP as MXFP
from ...format import MXINT as MXINT
from ...format import ROUNDING_MODE as ROUNDING_MODE
from ...format import BlockFloatingPoint as BlockFloatingPoint
from ...format import FixedPoint as FixedPoint
from ...format import FloatingPoint as FloatingPoint
from ...format import Format as Format
from ...format import Same as Same
from ...format import ScaledBlockFloatingPoint as ScaledBlockFloatingPoint

#: Whether d-Matrix's closed package of rules is installed: never here.
NUMERICS_UTILS_AVAILABLE = False
