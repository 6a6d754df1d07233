"""QPyTorch's names, defaults and errors on top of gemmsim's formats. qtorch is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

if TYPE_CHECKING:
    from . import auto_low as auto_low
    from . import optim as optim
    from . import quant as quant
    from .functions import block_quantize as block_quantize
    from .functions import fixed_point_quantize as fixed_point_quantize
    from .functions import float_quantize as float_quantize
    from .number import BlockFloatingPoint as BlockFloatingPoint
    from .number import FixedPoint as FixedPoint
    from .number import FloatingPoint as FloatingPoint
    from .number import Number as Number
    from .optim import OptimLP as OptimLP
    from .quantizers import Quantizer as Quantizer
    from .quantizers import quantizer as quantizer
else:
    __getattr__, __dir__ = exports(__name__)
