"""Block formats as constants of kernels: gemmsim::MxFormat (cutlass_kernels/include/gemmsim/device/mx_format.h)."""

from __future__ import annotations

import struct
from functools import lru_cache

from gemmsim.formats import E8M0, BlockFormat

from ..cpu.block_records import BlockRecord, block_record
from .codes import CodeFormat, code_format

__all__ = ["TAKES_LOGARITHM", "mx_literal", "mx_record"]

#: gemmsim::ScaleRule, in the order of the CPU library's numbers.
_RULES = ("FLOOR", "CEIL", "EVEN", "RCEIL", "LOG2_FLOOR", "LOG2_CEIL", "NEAREST")
#: Rules that need the table of rounded logarithms.
TAKES_LOGARITHM = (4, 5)
_INTEGER, _KEEPS_INFINITY, _MICROXCALING, _FLUSH, _TENSOR_SCALE = 1, 4, 8, 16, 32
#: Of formats whose scales are e8m0, which kernels decode by themselves.
_NO_CODES = CodeFormat(*[0] * 12)


def mx_record(fmt: BlockFormat) -> BlockRecord:
    """The CPU library's record of ``fmt``, from which the kernels' constants are taken."""
    return block_record(fmt, 24)[0]


def _bits(x: float) -> str:
    return f"{struct.unpack('<I', struct.pack('<f', x))[0]:#010x}u"


def _factor(fmt: BlockFormat, code: int) -> str:
    """Bits of what elements are multiplied by under ``code`` of e8m0."""
    tables = block_record(fmt, 24)[1]
    return _bits(tables[0][code])  # type: ignore[index]


@lru_cache(maxsize=1024)
def mx_literal(fmt: BlockFormat) -> str:
    """Initializer of a ``gemmsim::MxFormat`` by field names."""
    record = mx_record(fmt)
    powers = fmt.scale == E8M0
    scale = _NO_CODES if powers else code_format(fmt.scale)
    fields = {
        "block": fmt.block_size,
        "rule": f"gemmsim::ScaleRule::{_RULES[record.rule]}",
        "rounding": record.rounding,
        "integer": int(bool(record.flags & _INTEGER)),
        "keeps_infinity": int(bool(record.flags & _KEEPS_INFINITY)),
        "microxcaling": int(bool(record.flags & _MICROXCALING)),
        "flush": int(bool(record.flags & _FLUSH)),
        "tensor_scale": int(bool(record.flags & _TENSOR_SCALE)),
        **{name: getattr(record, name) for name in ("bits", "trailing", "emin", "top", "nan_code")},
        "infinity": record.inf_code,
        "nan_from": record.nan_from,
        "emax": record.scale_emax,
        "even_trailing": record.even_trailing,
        "max": f"{float(record.max).hex()}f",
        "rule_arg": f"{float(record.rule_arg).hex()}f",
        "first_factor": _factor(fmt, 0),
        "last_factor": _factor(fmt, 255),
        "powers": int(powers),
        "scale": scale.literal(),
        "scale_emin": record.scale_emin,
        "scale_nan": record.scale_nan,
        "scale_low": f"{float(record.scale_low).hex()}f",
        "scale_high": f"{float(record.scale_high).hex()}f",
    }
    return "{" + ", ".join(f".{name} = {value}" for name, value in fields.items()) + "}"
