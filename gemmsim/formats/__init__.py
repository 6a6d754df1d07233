"""Number formats, roundings and overflow policies as values.

``FloatFormat``, ``FixedFormat``, ``Rounding``, ``Overflow`` and ``Cast`` are frozen, hashable and validated when built.
For each ``parse(str(x)) == x``, ``eval(repr(x)) == x`` with the names of this package, and ``to_json`` is read back by
``from_json``. Nothing here needs more than the standard library.
"""

from .any_format import Format, format_from_json
from .binary8 import Binary8Format, Binary8Policy
from .block import BLOCK_NAMES, BlockFormat, BlockMode, ScaleRule
from .block_float import BlockFloatFormat, Sharing, parse_block_float
from .block_grammar import parse_block
from .cast import Cast
from .codebook import CodebookFormat, codebook
from .dmatrix_names import TENSOR_FORMATS, TensorFormat, is_tensor_format_name, parse_tensor_format
from .errors import FormatError
from .finite_float import FiniteFloatFormat
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .named import (
    BF16,
    BINARY8P3,
    BINARY8P4,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3B11FNUZ,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
    IEEE_E4M3,
    INT4,
    INT8,
    INT16,
    INT32,
    NAMED,
    NF4,
    TF32,
    UE4M3,
    UINT4,
    UINT8,
    NamedFormat,
)
from .own_exponent import OwnExponentFormat, own_exponent
from .p3109 import binary_format
from .parsing import AnyFormat, aliases, names, parse, parse_cast, parse_scalar, register
from .posit import posit
from .rounding import Overflow, Rounding, RoundingMode, parse_overflow, parse_rounding
from .scaled_block import ScaledBlockFormat
from .specials import Specials
from .supernormal import PowerTie, SupernormalFormat

__all__ = [
    "BF16",
    "BINARY8P3",
    "BINARY8P4",
    "E2M1",
    "E2M3",
    "E3M2",
    "E3M4",
    "E4M3",
    "E4M3B11FNUZ",
    "E4M3FNUZ",
    "E5M2",
    "E5M2FNUZ",
    "E8M0",
    "FP16",
    "FP32",
    "FP64",
    "IEEE_E4M3",
    "INT16",
    "INT32",
    "INT4",
    "INT8",
    "NAMED",
    "NF4",
    "TENSOR_FORMATS",
    "TF32",
    "UE4M3",
    "UINT4",
    "UINT8",
    "AnyFormat",
    "BLOCK_NAMES",
    "Binary8Format",
    "Binary8Policy",
    "BlockFloatFormat",
    "BlockFormat",
    "BlockMode",
    "Cast",
    "CodebookFormat",
    "FiniteFloatFormat",
    "FixedFormat",
    "FloatFormat",
    "Format",
    "FormatError",
    "NamedFormat",
    "Overflow",
    "OwnExponentFormat",
    "PowerTie",
    "Rounding",
    "RoundingMode",
    "ScaleRule",
    "ScaledBlockFormat",
    "Sharing",
    "Specials",
    "SupernormalFormat",
    "TensorFormat",
    "aliases",
    "binary_format",
    "codebook",
    "format_from_json",
    "is_tensor_format_name",
    "names",
    "own_exponent",
    "parse",
    "parse_block",
    "parse_block_float",
    "parse_cast",
    "parse_overflow",
    "parse_rounding",
    "parse_scalar",
    "parse_tensor_format",
    "posit",
    "register",
]


def __dir__() -> list[str]:
    return sorted(__all__)
