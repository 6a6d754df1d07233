"""Matrix products emulated by several narrower ones: slices of the operands, some of their cross products, and a sum.

    scheme = gs.sliced.bf16(3)                # fp32 by nine bf16 products
    scheme(a, b)
    print(scheme.explain())

``Sliced`` is the general form; ``bf16``, ``tf32x3`` and ``ozaki_int8`` are published ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .presets import bf16 as bf16
    from .presets import ozaki_int8 as ozaki_int8
    from .presets import tf32x3 as tf32x3
    from .scheme import Sliced as Sliced
    from .scheme import matmul as matmul
    from .slices import FloatSlices as FloatSlices
    from .slices import IntegerSlices as IntegerSlices
else:
    __getattr__, __dir__ = exports(__name__)
