"""mptorch's names on gemmsim: ``number``, ``quant``, ``optim``, ``utils``, with their argument orders and defaults.

``from gemmsim.compat import mptorch`` in place of ``import mptorch``. Results are gemmsim's: every step is rounded
once, the same on every device. docs/reference/compat/mptorch.md lists where that differs from mptorch 0.3.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

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
else:
    __getattr__, __dir__ = exports(__name__)
