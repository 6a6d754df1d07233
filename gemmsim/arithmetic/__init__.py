"""What a matrix product means: accumulators and ``GemmSpec``, as values.

Frozen, hashable, validated when built; ``parse(str(x)) == x`` and ``from_json(x.to_json()) == x``. Nothing here needs
more than the standard library.
"""

from .accumulator import Accumulator, constructors, register
from .errors import SpecError, SpecFormatError, UnsupportedSpec
from .grammar import parse_accumulator
from .sequential import Sequential
from .spec import GemmSpec, SpecLike

__all__ = [
    "Accumulator",
    "GemmSpec",
    "Sequential",
    "SpecError",
    "SpecFormatError",
    "SpecLike",
    "UnsupportedSpec",
    "constructors",
    "parse_accumulator",
    "register",
]
