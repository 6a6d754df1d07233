"""Lowers block formats: their numbers for kernels, and the tables that conversions to and from them read."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

from gemmsim.formats import E8M0, BlockFormat, BlockMode, FixedFormat, RoundingMode, ScaleRule

__all__ = [
    "BlockNumbers",
    "BlockRule",
    "block_numbers",
    "decode_factors",
    "encode_factors",
    "log2_steps",
    "source_precision",
]


class BlockRule(IntEnum):
    """gemmsim::BlockRule: how a block's scale follows from its largest magnitude."""

    FLOOR = 0
    CEIL = 1
    EVEN = 2
    RCEIL = 3
    LOG2_FLOOR = 4
    LOG2_CEIL = 5
    #: A scale that need not be a power of two.
    REAL = 6

    @property
    def takes_logarithm(self) -> bool:
        """Whether the rule needs the table of rounded logarithms."""
        return self in (BlockRule.LOG2_FLOOR, BlockRule.LOG2_CEIL)


_ROUNDINGS: Final = {RoundingMode.RNE: 0, RoundingMode.RNA: 1, RoundingMode.RTZ: 2}
#: No code of up to eight bits has this value.
_NO_CODE: Final = 256


@dataclass(frozen=True)
class BlockNumbers:
    """gemmsim::BlockFormat and gemmsim::MxFormat: the scale's rule and format, and the elements and their codes."""

    rule: BlockRule
    rule_arg: float
    rounding: int
    block_size: int
    #: Properties of the elements: ``integer``: fixed point; ``keeps_infinity``: infinities stay infinite;
    #: ``microxcaling``: the steps follow microxcaling's order; ``flush``: blocks below 2^-126 become zeros;
    #: ``specials``: the element format has NaN or infinity.
    integer: bool
    keeps_infinity: bool
    microxcaling: bool
    flush: bool
    specials: bool
    #: Whether the whole tensor has a scale in addition.
    tensor_scale: bool
    bits: int
    trailing: int
    emin: int
    top: int
    max: float
    nan_code: int
    inf_code: int
    nan_from: int
    even_trailing: int
    scale_emax: int
    scale_trailing: int = 0
    scale_emin: int = 0
    scale_nan: int = 0
    scale_low: float = 0.0
    scale_high: float = 0.0


def source_precision(fmt: BlockFormat, is_bfloat16: bool) -> int:
    """Return the significand bits with which the logarithm of a block's largest magnitude is computed.

    torchao 0.6.1 computes it in the tensor's own dtype, the other modes in binary32.
    """
    return 8 if fmt.mode is BlockMode.TORCHAO_0_6_1 and is_bfloat16 else 24


@lru_cache(maxsize=256)
def block_numbers(fmt: BlockFormat) -> BlockNumbers:
    """Return the numbers of ``fmt``."""
    elements: dict[str, Any] = {"scale_emax": fmt.emax, "max": fmt.element.max} | _elements(fmt)
    return BlockNumbers(
        rounding=_ROUNDINGS[fmt.rounding.mode],
        block_size=fmt.block_size,
        keeps_infinity=fmt.mode is BlockMode.TORCHAO_0_18,
        microxcaling=fmt.mode is BlockMode.MICROXCALING,
        flush=fmt.flush,
        tensor_scale=fmt.tensor_scale,
        bits=fmt.element.bits,
        even_trailing=fmt.trailing_bits,
        **elements,
        **_rule(fmt),
    )


def _elements(fmt: BlockFormat) -> dict[str, Any]:
    element = fmt.element
    no_codes: dict[str, Any] = {"inf_code": _NO_CODE, "nan_from": _NO_CODE, "nan_code": 0, "specials": False}
    if isinstance(element, FixedFormat):
        own = no_codes | {"integer": True, "trailing": element.frac, "top": element.max_significand, "emin": 0}
        if fmt.mode is BlockMode.TORCHMX:  # integers in place of fractions
            own |= {"emin": element.frac, "scale_emax": element.frac, "max": float(element.max_significand)}
        return own
    found = no_codes | {"integer": False, "trailing": element.trailing_bits, "emin": element.emin}
    found["top"] = element.max_code
    found["specials"] = element.has_inf or element.has_nan
    if element.has_inf:
        found["inf_code"] = element.max_code + 1
    if element.has_nan:
        found["nan_from"] = element.max_code + (2 if element.has_inf else 1)
        found["nan_code"] = 0 if fmt.mode is BlockMode.TORCHMX else (1 << (element.bits - 1)) - 1
    return found


def _rule(fmt: BlockFormat) -> dict[str, Any]:
    largest = _binary32(fmt.element.max)
    if fmt.scale != E8M0:
        scale = fmt.scale
        return {
            "rule": BlockRule.REAL,
            "rule_arg": largest,
            "scale_trailing": scale.trailing_bits,
            "scale_emin": scale.emin,
            "scale_nan": (1 << (scale.bits - 1)) - 1,
            "scale_low": scale.smallest_normal,
            "scale_high": scale.max,
        }
    if fmt.mode is BlockMode.TORCHAO_0_18 and fmt.rule is ScaleRule.RCEIL:
        return {"rule": BlockRule.LOG2_CEIL, "rule_arg": largest}
    if fmt.mode in (BlockMode.TORCHAO_0_6_1, BlockMode.MICROXCALING):
        return {"rule": BlockRule.LOG2_FLOOR, "rule_arg": 0.0}
    arg = _binary32(1.0 / largest) if fmt.rule is ScaleRule.RCEIL else 0.0
    return {"rule": BlockRule[fmt.rule.name], "rule_arg": arg}


def _binary32(x: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", x))[0]
    return found


@lru_cache(maxsize=256)
def encode_factors(fmt: BlockFormat) -> tuple[float, ...]:
    """Return the factor that elements are multiplied by under each scale code; NaN where the whole block is NaN."""
    if fmt.scale != E8M0:
        return (math.nan,) * 256
    factors = tuple(2.0 ** (127 - code) for code in range(255))
    if fmt.mode is BlockMode.TORCHAO_0_18 and fmt.rule is ScaleRule.RCEIL:
        return (1.0, *factors[1:], math.nan)  # code 0 means "no scale" there
    if fmt.mode in (BlockMode.TORCHAO_0_18, BlockMode.TORCHAO_0_6_1):
        return (2.0**126, *factors[1:], 0.0)  # that code divides by 2^-126 and by infinity
    return (*factors, math.nan)


@lru_cache(maxsize=256)
def decode_factors(fmt: BlockFormat) -> tuple[float, ...]:
    """Return the value of each scale code; NaN for codes that the format does not have."""
    if fmt.scale == E8M0:
        return (*(2.0 ** (code - 127) for code in range(255)), math.nan)
    known = tuple(fmt.scale.decode(code) for code in range(1 << fmt.scale.bits))
    return known + (math.nan,) * (256 - len(known))


@lru_cache(maxsize=4)
def log2_steps(precision: int, upward: bool) -> tuple[int, ...]:
    """Return, for each exponent, the least trailing field whose rounded log2 belongs to the next integer.

    The index is the exponent plus 160. The log2 is rounded to ``precision`` bits. It belongs to the next integer if
    that is its floor, or with ``upward`` its ceiling. A logarithm rounds to an integer if its distance from it is at
    most half the spacing of ``precision``-bit numbers there. The distance never is exactly half, because the logarithm
    is irrational.
    """
    table = [1 << 23] * 320
    for exponent in range(-150, 128):
        whole = exponent if upward else exponent + 1
        half = _spacing(whole, precision, upward) / 2
        table[exponent + 160] = math.ceil((2.0**half if upward else 2.0 ** (1 - half)) * 2**23) - (1 << 23)
        if upward:
            table[exponent + 160] = max(table[exponent + 160], 1)
    return tuple(table)


def _spacing(whole: int, precision: int, upward: bool) -> float:
    """Return the distance from an integer to the next number of ``precision`` bits above it (``upward``) or below it.

    The result is 0 for the integer 0, because no logarithm rounds to it.
    """
    if whole == 0:
        return 0.0
    towards_zero = (whole > 0) is not upward
    binade = math.frexp(abs(whole))[1] - 1
    is_power = abs(whole) & (abs(whole) - 1) == 0
    return 2.0 ** (binade - (precision - 1) - int(towards_zero and is_power))
