"""Numbers that kernels and both backends agree on: dtypes, sites of random bits, kinds of runs (of orders: ``orders``).

The C++ side of the enumerations is in cutlass_kernels: their values are part of the C interface and of kernel texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from gemmsim.formats import FixedFormat, Format, RoundingMode

__all__ = [
    "BFLOAT16",
    "CODES",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "FLOATS",
    "HARDWARE_OUTS",
    "INITS",
    "INT16",
    "INT32",
    "MAX_BATCH_DIMS",
    "MAX_WRAPPERS",
    "MODES",
    "CastFlag",
    "DType",
    "HardwareKind",
    "Method",
    "Site",
    "holds",
]

#: Dimensions of a tensor that records have room for, beside the two of a matrix.
MAX_BATCH_DIMS: Final = 16
#: Nested orders of a program.
MAX_WRAPPERS: Final = 4


class Site(IntEnum):
    """The operation a random number belongs to, part of the Philox counter (docs/reference/random_bits.md)."""

    OPERAND_A = 0
    OPERAND_B = 1
    PRODUCT = 2
    ACCUMULATE = 3
    OUTPUT = 4
    QUANTIZE = 16
    PERMUTATION = 17
    #: The output cast after the overlap-add of a transposed convolution.
    OVERLAP = 18
    #: Of a row operation's first step; step i draws at ``ROWS + i``.
    ROWS = 64


class CastFlag(IntFlag):
    """gemmsim::CastFlags."""

    NO_SUBNORMALS = 1
    NEG_ZERO = 2
    CODE_PARITY = 4
    NO_ZERO = 8
    NO_CARRY = 16
    PRESENT = 32
    SUPERNORMAL = 64
    EVEN_EXPONENT = 128
    FIRST_IS_ZERO = 256
    NEGATIVE_NAN = 512


class Method(IntEnum):
    """gemmsim::Method: what a run of terms is."""

    REGISTER = 0
    KAHAN = 1
    NEUMAIER = 2
    TWO_SUM = 3
    FAST_TWO_SUM = 4
    LONG = 5
    INTEGER = 6
    FIXED = 7
    HARDWARE = 8
    BINNED = 9


class HardwareKind(IntEnum):
    """gemmsim::HardwareKind: the step of a chip's matrix instruction."""

    NONE = 0
    FUSED = 1
    GROUPS = 2
    TREE = 3
    FLOORED = 4
    #: A chain of fused multiply-adds, which is the plain register; only the filling up of K is left to do.
    FMA = 5
    TWO_BLOCKS = 6


#: gemmsim::Init: where an addend enters.
INITS: Final = {"zero": 0, "c_first": 1, "c_last": 2}
#: gemmsim::HardwareOut: the conversion at the end of a step.
HARDWARE_OUTS: Final = {"rz23": 0, "e8m13": 1, "rne10": 2, "rne23": 3, "cast": 4, "cast_inf": 5}
#: gemmsim::Mode.
MODES: Final = {mode: index for index, mode in enumerate(RoundingMode)} | {RoundingMode.RND: -1, RoundingMode.RNU: -2}


@dataclass(frozen=True)
class DType:
    """A dtype of tensors: its name in PyTorch and in kernels, its number there, bytes of an element, and its numbers.

    ``p``: significand bits; ``quantum``: exponent of the smallest subnormal; ``top``: of the power of two above all.
    """

    name: str
    label: str
    number: int
    bytes: int
    p: int
    quantum: int
    top: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return math.ldexp(2.0 - 2.0 ** (1 - self.p), self.top - 1)

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number."""
        return self.quantum + self.p - 1


FLOAT32: Final = DType("float32", "F32", 0, 4, 24, -149, 128)
FLOAT64: Final = DType("float64", "F64", 1, 8, 53, -1074, 1024)
FLOAT16: Final = DType("float16", "F16", 2, 2, 11, -24, 16)
BFLOAT16: Final = DType("bfloat16", "BF16", 3, 2, 8, -133, 128)
FLOATS: Final = (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)
#: Of codes: their format's cast says which numbers they are, or that of the products in a table.
CODES: Final = DType("uint8", "CODES", 4, 1, 53, -1074, 1024)
INT16: Final = DType("int16", "I16", 5, 2, 53, -1074, 1024)
INT32: Final = DType("int32", "I32", 6, 4, 53, -1074, 1024)


def holds(dtype: DType, fmt: Format) -> bool:
    """Whether ``dtype`` has every number of ``fmt``; no dtype has those of an unbounded grid."""
    if isinstance(fmt, FixedFormat):
        if not fmt.clamp:
            return False
        p = fmt.bits - int(fmt.signed)
    else:
        p = fmt.p
    return p <= dtype.p and fmt.quantum_exponent >= dtype.quantum and max(fmt.max, -fmt.min) <= dtype.largest
