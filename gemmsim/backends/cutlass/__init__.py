"""Products by CUTLASS' own mainloop for Hopper, where ``gemmsim.cutlass_acceleration`` requests them.

Operand and output casts are those of the spec, bit for bit. The sum between them is that of the chip's instructions for
ascending k, in whole tiles.
"""

from .products import mainloop_of, multiply, refuses

__all__ = ["mainloop_of", "multiply", "refuses"]
