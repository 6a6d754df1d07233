"""Number formats, roundings and overflow policies as values.

``FloatFormat``, ``FixedFormat``, ``Rounding``, ``Overflow`` and ``Cast`` are frozen, hashable and validated when built.
For each of them ``parse(str(x)) == x``, ``eval(repr(x)) == x`` with the names of this package, and ``from_json`` reads
back what ``to_json`` wrote. This package only needs the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports
from . import named as _named
from .any_format import Format as Format
from .any_format import format_from_json as format_from_json
from .binary8 import Binary8Format as Binary8Format
from .binary8 import Binary8Policy as Binary8Policy
from .block import BLOCK_NAMES as BLOCK_NAMES
from .block import BlockFormat as BlockFormat
from .block import BlockMode as BlockMode
from .block import ScaleRule as ScaleRule
from .block_float import BlockFloatFormat as BlockFloatFormat
from .block_float import Sharing as Sharing
from .block_float import parse_block_float as parse_block_float
from .block_grammar import parse_block as parse_block
from .cast import Cast as Cast
from .codebook import CodebookFormat as CodebookFormat
from .codebook import codebook as codebook
from .dmatrix_names import TENSOR_FORMATS as TENSOR_FORMATS
from .dmatrix_names import TensorFormat as TensorFormat
from .dmatrix_names import is_tensor_format_name as is_tensor_format_name
from .dmatrix_names import parse_tensor_format as parse_tensor_format
from .errors import FormatError as FormatError
from .finite_float import FiniteFloatFormat as FiniteFloatFormat
from .fixed_format import FixedFormat as FixedFormat
from .float_format import FloatFormat as FloatFormat
from .named import *  # noqa: F403  # a new format is a row there
from .own_exponent import OwnExponentFormat as OwnExponentFormat
from .own_exponent import own_exponent as own_exponent
from .p3109 import binary_format as binary_format
from .parsing import AnyFormat as AnyFormat
from .parsing import aliases as aliases
from .parsing import names as names
from .parsing import parse as parse
from .parsing import parse_cast as parse_cast
from .parsing import parse_scalar as parse_scalar
from .parsing import register as register
from .posit import posit as posit
from .rounding import Overflow as Overflow
from .rounding import Rounding as Rounding
from .rounding import RoundingMode as RoundingMode
from .rounding import parse_overflow as parse_overflow
from .rounding import parse_rounding as parse_rounding
from .scaled_block import ScaledBlockFormat as ScaledBlockFormat
from .scaled_cast import ScaledCast as ScaledCast
from .scaled_cast import ScaledCastRule as ScaledCastRule
from .specials import Specials as Specials
from .supernormal import PowerTie as PowerTie
from .supernormal import SupernormalFormat as SupernormalFormat

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, also=(*_named.__all__,))
