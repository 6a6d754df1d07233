"""What a matrix product means: accumulators and ``GemmSpec``, as values.

Frozen, hashable, validated when built; ``parse(str(x)) == x`` and ``from_json(x.to_json()) == x``. Nothing here needs
more than the standard library.
"""

from .accumulator import Accumulator, constructors, register
from .chunked import Chunked, Promote
from .compensated import Compensated, FastTwoSum, Kahan, Neumaier, TwoSum
from .custom import Custom, Swapped, define
from .errors import SelectError, SpecError, SpecFormatError, UnsupportedSpec
from .exact_sum import Binned, Exact
from .fused import Fused
from .grammar import parse_accumulator
from .hardware import Hardware
from .integer import Fixed, Integer
from .integer_width_bounds import min_accumulator_bits, overflow_certificate
from .interleaved import Interleaved
from .lookup import Lookup, ProductTable, table
from .pairwise import Pairwise
from .palette import Palette
from .scaled import Scaled
from .sequential import Sequential
from .shuffled import Shuffled
from .spec import GemmSpec, SpecLike
from .splitk import SplitK

__all__ = [
    "Accumulator",
    "Binned",
    "Chunked",
    "Compensated",
    "Custom",
    "Exact",
    "FastTwoSum",
    "Fixed",
    "Fused",
    "GemmSpec",
    "Hardware",
    "Integer",
    "Interleaved",
    "Kahan",
    "Lookup",
    "Neumaier",
    "Pairwise",
    "Palette",
    "ProductTable",
    "Promote",
    "Scaled",
    "Sequential",
    "Shuffled",
    "SelectError",
    "SpecError",
    "SpecFormatError",
    "SpecLike",
    "SplitK",
    "Swapped",
    "TwoSum",
    "UnsupportedSpec",
    "constructors",
    "define",
    "min_accumulator_bits",
    "overflow_certificate",
    "parse_accumulator",
    "register",
    "table",
]


def __dir__() -> list[str]:
    return sorted(__all__)
