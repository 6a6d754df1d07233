"""The named formats: one line each, with the document that defines it and the other names it goes by."""

from __future__ import annotations

import typing

from .any_format import Format
from .codebook import CodebookFormat
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .p3109 import binary_format
from .specials import Specials

_F = typing.TypeVar("_F", FloatFormat, FixedFormat, CodebookFormat)


class NamedFormat(typing.NamedTuple):
    """A format with the document that defines it and its names.

    Example:
        >>> next(one for one in gs.formats.NAMED if one.format == gs.formats.BF16).aliases
        ('bf16', 'bfloat16', 'b')
    """

    format: Format
    source: str
    aliases: tuple[str, ...]


#: Every named format, in the order of definition.
NAMED: list[NamedFormat] = []


def _named(fmt: _F, source: str, *aliases: str) -> _F:
    NAMED.append(NamedFormat(fmt, source, aliases))
    return fmt


_OFP8, _MX, _IEEE = "OCP OFP8 rev. 1.0", "OCP MX rev. 1.0", "IEEE 754-2019"
_AMD, _P3109, _CUDA = "arXiv:2206.02915", "IEEE P3109 v4.0", "PTX ISA"

# fmt: off
E4M3 = _named(FloatFormat(4, -6, 8, Specials.NAN_ONLY), f"{_OFP8}, E4M3", "e4m3fn", "float8_e4m3fn", "fp8_e4m3")
E5M2 = _named(FloatFormat(3, -14, 15), f"{_OFP8}, E5M2", "float8_e5m2", "fp8_e5m2", "q52")
E3M2 = _named(FloatFormat(3, -2, 4, Specials.NONE), f"{_MX}, FP6 E3M2", "e3m2fn", "float6_e3m2fn", "fp6_e3m2")
E2M3 = _named(FloatFormat(4, 0, 2, Specials.NONE), f"{_MX}, FP6 E2M3", "e2m3fn", "float6_e2m3fn", "fp6_e2m3")
E2M1 = _named(FloatFormat(2, 0, 2, Specials.NONE), f"{_MX}, FP4 E2M1", "e2m1fn", "float4_e2m1fn", "fp4")
E8M0 = _named(FloatFormat(1, -127, 127, Specials.SCALE, False), f"{_MX}, E8M0", "e8m0fnu", "float8_e8m0fnu", "ue8m0")
FP16 = _named(FloatFormat(11, -14, 15), f"{_IEEE}, binary16", "fp16", "half", "float16", "binary16", "h")
BF16 = _named(FloatFormat(8, -126, 127), "upper half of IEEE 754 binary32", "bf16", "bfloat16", "b")
TF32 = _named(FloatFormat(11, -126, 127), f"{_CUDA}, .tf32", "tf32", "tensorfloat32")
FP32 = _named(FloatFormat(24, -126, 127), f"{_IEEE}, binary32", "fp32", "single", "float", "float32", "binary32", "s")
FP64 = _named(FloatFormat(53, -1022, 1023), f"{_IEEE}, binary64", "fp64", "double", "float64", "binary64", "d")
E4M3FNUZ = _named(FloatFormat(4, -7, 7, Specials.FNUZ), _AMD, "float8_e4m3fnuz")
E5M2FNUZ = _named(FloatFormat(3, -15, 15, Specials.FNUZ), _AMD, "float8_e5m2fnuz")
E4M3B11FNUZ = _named(FloatFormat(4, -10, 4, Specials.FNUZ), "ml_dtypes float8_e4m3b11fnuz", "float8_e4m3b11fnuz")
IEEE_E4M3 = _named(FloatFormat(4, -6, 7), f"{_IEEE} 3.3 rules at 8 bits", "float8_e4m3", "q43")
E3M4 = _named(FloatFormat(5, -2, 3), f"{_IEEE} 3.3 rules at 8 bits", "float8_e3m4")
UE4M3 = _named(FloatFormat(4, -6, 8, Specials.NAN_ONLY, signed=False), f"{_CUDA}, .ue4m3", "ue4m3")
BINARY8P3 = _named(binary_format(8, 3), f"{_P3109}, Binary8p3se", "binary8p3")
BINARY8P4 = _named(binary_format(8, 4), f"{_P3109}, Binary8p4se", "binary8p4")
INT4 = _named(FixedFormat(4, 0), "two's complement", "int4")
INT8 = _named(FixedFormat(8, 0), "two's complement", "int8")
INT16 = _named(FixedFormat(16, 0), "two's complement", "int16")
INT32 = _named(FixedFormat(32, 0), "two's complement", "int32")
UINT4 = _named(FixedFormat(4, 0, signed=False), "binary", "uint4")
UINT8 = _named(FixedFormat(8, 0, signed=False), "binary", "uint8")
NF4 = _named(
    CodebookFormat(
        (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
         -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
         0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
        tie="low", label="nf4",
    ),
    "Dettmers et al., QLoRA, 2023, appendix E", "nf4",
)
# fmt: on

if not typing.TYPE_CHECKING:  # type checkers take every name without an underscore
    __all__ = ["NamedFormat", *(name for name in globals() if name.isupper() and name[0] != "_")]
