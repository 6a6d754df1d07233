"""Block formats as constants of kernels: gemmsim::MxFormat (cutlass_kernels/include/gemmsim/device/mx_format.h)."""

from __future__ import annotations

import struct
from functools import lru_cache

from gemmsim.formats import E8M0, BlockFormat
from gemmsim.lowering.blocks import BlockRule, block_numbers, encode_factors

from ..codes import CodeFormat, code_format

__all__ = ["mx_literal"]

#: The code format where scales are e8m0, which kernels decode without it.
_NO_CODES = CodeFormat(*[0] * 12)


def _bits(x: float) -> str:
    return f"{struct.unpack('<I', struct.pack('<f', x))[0]:#010x}u"


def _factor(fmt: BlockFormat, code: int) -> str:
    """Return the bits of the factor that elements are multiplied by under ``code`` of e8m0."""
    return _bits(encode_factors(fmt)[code])


def _rule_name(rule: BlockRule) -> str:
    """Return the enumerator of the rule in gemmsim::ScaleRule."""
    return "NEAREST" if rule is BlockRule.REAL else rule.name


@lru_cache(maxsize=1024)
def mx_literal(fmt: BlockFormat) -> str:
    """Return the initializer of a ``gemmsim::MxFormat`` by field names."""
    numbers = block_numbers(fmt)
    powers = fmt.scale == E8M0
    scale = _NO_CODES if powers else code_format(fmt.scale)
    fields = {
        "block": fmt.block_size,
        "rule": f"gemmsim::ScaleRule::{_rule_name(numbers.rule)}",
        "rounding": numbers.rounding,
        "integer": int(numbers.integer),
        "keeps_infinity": int(numbers.keeps_infinity),
        "microxcaling": int(numbers.microxcaling),
        "flush": int(numbers.flush),
        "tensor_scale": int(numbers.tensor_scale),
        **{name: getattr(numbers, name) for name in ("bits", "trailing", "emin", "top", "nan_code")},
        "infinity": numbers.inf_code,
        "nan_from": numbers.nan_from,
        "emax": numbers.scale_emax,
        "even_trailing": numbers.even_trailing,
        "max": f"{float(numbers.max).hex()}f",
        "rule_arg": f"{float(numbers.rule_arg).hex()}f",
        "first_factor": _factor(fmt, 0),
        "last_factor": _factor(fmt, 255),
        "powers": int(powers),
        "scale": scale.literal(),
        "scale_emin": numbers.scale_emin,
        "scale_nan": numbers.scale_nan,
        "scale_low": f"{float(numbers.scale_low).hex()}f",
        "scale_high": f"{float(numbers.scale_high).hex()}f",
    }
    return "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"
