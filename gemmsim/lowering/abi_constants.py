"""Constants of the kernels' interface: dtypes, streams of random bits, and enumerations shared by both backends.

cutlass_kernels defines the C++ side of the enumerations. Their values are part of the C interface and of kernel texts.
``orders`` defines the enumeration of orders.
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

#: Number of batch dimensions for which records have room, in addition to the two of a matrix.
MAX_BATCH_DIMS: Final = 16
#: Largest number of nested orders, and of roundings of a schedule, in a program.
MAX_WRAPPERS: Final = 8


class Site(IntEnum):
    """The stream to which a random number belongs: part of the Philox counter (docs/reference/random_bits.md)."""

    OPERAND_A = 0
    OPERAND_B = 1
    PRODUCT = 2
    ACCUMULATE = 3
    OUTPUT = 4
    QUANTIZE = 16
    PERMUTATION = 17
    #: The output cast after the overlap-add of a transposed convolution.
    OVERLAP = 18
    #: The first step of a row operation; step i uses stream ``ROWS + i``.
    ROWS = 64


class CastFlag(IntFlag):
    """gemmsim::CastFlags: properties of a cast."""

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
    """gemmsim::Method: how an innermost sum adds its terms."""

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
    #: A chain of fused multiply-adds. The plain register computes it; only the padding of K remains.
    FMA = 5
    TWO_BLOCKS = 6


#: gemmsim::Init: where an addend C enters the sum.
INITS: Final = {"zero": 0, "c_first": 1, "c_last": 2}
#: gemmsim::HardwareOut: the conversion at the end of an instruction's step.
HARDWARE_OUTS: Final = {"rz23": 0, "e8m13": 1, "rne10": 2, "rne23": 3, "cast": 4, "cast_inf": 5}
#: gemmsim::Mode: the number of each rounding mode.
MODES: Final = {mode: index for index, mode in enumerate(RoundingMode)} | {RoundingMode.RND: -1, RoundingMode.RNU: -2}


@dataclass(frozen=True)
class DType:
    """A dtype of tensors: its name in PyTorch, its label and number in kernels, and its range and precision.

    ``bytes`` is the size of an element. ``p`` is the number of significand bits. ``quantum`` is the exponent of the
    smallest subnormal number. All magnitudes are below 2^``top``.
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
#: Dtype of codes. The cast of their format, or the table of products, says which numbers they stand for.
CODES: Final = DType("uint8", "CODES", 4, 1, 53, -1074, 1024)
INT16: Final = DType("int16", "I16", 5, 2, 53, -1074, 1024)
INT32: Final = DType("int32", "I32", 6, 4, 53, -1074, 1024)


def holds(dtype: DType, fmt: Format) -> bool:
    """Whether ``dtype`` has every number of ``fmt``. No dtype has all numbers of an unbounded fixed-point format."""
    if isinstance(fmt, FixedFormat):
        if not fmt.clamp:
            return False
        p = fmt.bits - int(fmt.signed)
    else:
        p = fmt.p
    return p <= dtype.p and fmt.quantum_exponent >= dtype.quantum and max(fmt.max, -fmt.min) <= dtype.largest
