"""Products by CUTLASS' own mainloop for Hopper, where ``gemmsim.cutlass_acceleration`` requests them.

Operand and output casts are those of the spec, bit for bit. The sum between them is that of the chip's instructions for
ascending k, in whole tiles.
"""

from .products import explain, mainloop_of, multiply, refuses

__all__ = ["explain", "mainloop_of", "multiply", "refuses"]
