"""ctypes mirrors of the records in cutlass_kernels/cpu/block.h, and the record of a block format."""

from __future__ import annotations

import ctypes
import math
from ctypes import c_float, c_int32, c_int64, c_void_p
from functools import lru_cache

from gemmsim.formats import E8M0, BlockFormat, BlockMode, FixedFormat, RoundingMode, ScaleRule

from .records import MAX_BATCH_DIMS

__all__ = ["BlockArgs", "BlockRecord", "block_record", "source_precision"]

_Dims = c_int64 * MAX_BATCH_DIMS
_Floats = c_float * 256
_Steps = c_int32 * 320

_RULES = {
    rule: number for number, rule in enumerate((ScaleRule.FLOOR, ScaleRule.CEIL, ScaleRule.EVEN, ScaleRule.RCEIL))
}
_LOG2_FLOOR, _LOG2_CEIL, _REAL = 4, 5, 6
_ROUNDINGS = {RoundingMode.RNE: 0, RoundingMode.RNA: 1, RoundingMode.RTZ: 2}
_INTEGER, _KEEP_INF, _MXC, _FLUSH, _TENSOR_SCALE, _SPECIALS = 1, 4, 8, 16, 32, 64
#: Beyond every magnitude of eight bits and sign.
_NO_CODE = 256


class BlockRecord(ctypes.Structure):
    _fields_ = [
        ("rule", c_int32), ("flags", c_int32), ("rounding", c_int32), ("scale_emax", c_int32),
        ("block_size", c_int64),
        ("bits", c_int32), ("trailing", c_int32), ("emin", c_int32), ("top", c_int32), ("nan_code", c_int32),
        ("inf_code", c_int32), ("nan_from", c_int32), ("even_trailing", c_int32),
        ("max", c_float), ("rule_arg", c_float),
        ("scale_trailing", c_int32), ("scale_emin", c_int32), ("scale_nan", c_int32), ("reserved", c_int32),
        ("scale_low", c_float), ("scale_high", c_float), ("tensor_scale", c_float), ("reserved2", c_float),
        ("encode", c_void_p), ("decode", c_void_p), ("log2_from", c_void_p),
    ]  # fmt: skip


class BlockArgs(ctypes.Structure):
    #: What the format's pointers point to.
    tables: tuple[object, ...] = ()
    _fields_ = [
        ("src", c_void_p), ("codes", c_void_p), ("scales", c_void_p), ("dst", c_void_p),
        ("op", c_int32), ("packing", c_int32), ("src_dtype", c_int32), ("dst_dtype", c_int32),
        ("dims", c_int32), ("threads", c_int32),
        ("k", c_int64), ("src_step", c_int64), ("code_step", c_int64), ("scale_step", c_int64), ("dst_step", c_int64),
        ("size", _Dims), ("src_stride", _Dims), ("code_stride", _Dims), ("scale_stride", _Dims), ("dst_stride", _Dims),
        ("format", BlockRecord),
    ]  # fmt: skip


def source_precision(fmt: BlockFormat, is_bfloat16: bool) -> int:
    """Significand bits of the logarithm: torchao 0.6.1 takes it in the tensor's own dtype, the others in binary32."""
    return 8 if fmt.mode is BlockMode.TORCHAO_0_6_1 and is_bfloat16 else 24


@lru_cache(maxsize=256)
def block_record(fmt: BlockFormat, precision: int) -> tuple[BlockRecord, tuple[object, ...]]:
    """Record of ``fmt``, ``tensor_scale`` left at 1, and the tables that it points to, to be kept alive with it."""
    record = BlockRecord()
    record.rounding = _ROUNDINGS[fmt.rounding.mode]
    record.block_size = fmt.block_size
    record.max = fmt.element.max
    record.tensor_scale = 1.0
    _element_fields(record, fmt)
    _rule_fields(record, fmt)
    flags = (
        (_KEEP_INF, fmt.mode is BlockMode.TORCHAO_0_18),
        (_MXC, fmt.mode is BlockMode.MICROXCALING),
        (_FLUSH, fmt.flush),
        (_TENSOR_SCALE, fmt.tensor_scale),
    )
    record.flags |= sum(bit for bit, present in flags if present)
    tables = (
        _Floats(*_encode_factors(fmt)),
        _Floats(*_decode_factors(fmt)),
        _log2_steps(precision, record.rule == _LOG2_CEIL),
    )
    record.encode, record.decode, record.log2_from = (ctypes.addressof(table) for table in tables)
    return record, tables


def _element_fields(record: BlockRecord, fmt: BlockFormat) -> None:
    element = fmt.element
    record.bits = element.bits
    record.inf_code = record.nan_from = _NO_CODE
    record.even_trailing = fmt.trailing_bits
    record.scale_emax = fmt.emax
    if isinstance(element, FixedFormat):
        record.flags |= _INTEGER
        record.trailing, record.top = element.frac, element.max_significand
        if fmt.mode is BlockMode.TORCHMX:  # whole numbers in place of fractions
            record.emin = record.scale_emax = element.frac
            record.max = element.max_significand
        return
    record.trailing, record.emin, record.top = element.trailing_bits, element.emin, element.max_code
    if element.has_inf:
        record.inf_code = element.max_code + 1
    if element.has_nan:
        record.nan_from = element.max_code + (2 if element.has_inf else 1)
        record.nan_code = 0 if fmt.mode is BlockMode.TORCHMX else (1 << (element.bits - 1)) - 1
    if element.has_inf or element.has_nan:
        record.flags |= _SPECIALS


def _rule_fields(record: BlockRecord, fmt: BlockFormat) -> None:
    largest = c_float(fmt.element.max).value
    if fmt.scale != E8M0:
        scale = fmt.scale
        record.rule, record.rule_arg = _REAL, largest
        record.scale_trailing, record.scale_emin = scale.trailing_bits, scale.emin
        record.scale_nan = (1 << (scale.bits - 1)) - 1
        record.scale_low, record.scale_high = scale.smallest_normal, scale.max
    elif fmt.mode is BlockMode.TORCHAO_0_18 and fmt.rule is ScaleRule.RCEIL:
        record.rule, record.rule_arg = _LOG2_CEIL, largest
    elif fmt.mode in (BlockMode.TORCHAO_0_6_1, BlockMode.MICROXCALING):
        record.rule = _LOG2_FLOOR
    else:
        record.rule = _RULES[fmt.rule]
        record.rule_arg = 1.0 / largest if fmt.rule is ScaleRule.RCEIL else 0.0  # stored in binary32: rounded there


def _encode_factors(fmt: BlockFormat) -> list[float]:
    """What elements are multiplied by under each scale code; NaN where the whole block is."""
    if fmt.scale != E8M0:
        return [math.nan] * 256
    factors = [2.0 ** (127 - code) for code in range(255)]
    if fmt.mode is BlockMode.TORCHAO_0_18 and fmt.rule is ScaleRule.RCEIL:
        return [1.0, *factors[1:], math.nan]  # code 0 is taken for "no scale"
    if fmt.mode in (BlockMode.TORCHAO_0_18, BlockMode.TORCHAO_0_6_1):
        return [2.0**126, *factors[1:], 0.0]  # divides by 2^-126 and by infinity
    return [*factors, math.nan]


def _decode_factors(fmt: BlockFormat) -> list[float]:
    if fmt.scale == E8M0:
        return [*(2.0 ** (code - 127) for code in range(255)), math.nan]
    return [fmt.scale.decode(code) for code in range(1 << fmt.scale.bits)] + [math.nan] * (256 - (1 << fmt.scale.bits))


@lru_cache(maxsize=4)
def _log2_steps(precision: int, upward: bool) -> ctypes.Array[c_int32]:
    """By exponent + 160: least trailing field whose log2, rounded to ``precision`` bits, is of the next integer.

    That is: has it as floor, or ``upward`` as ceiling. A logarithm rounds to an integer if it is within half the
    spacing of ``precision``-bit numbers there; it never is exactly so far away, since it is irrational.
    """
    table = _Steps(*([1 << 23] * 320))
    for exponent in range(-150, 128):
        whole = exponent if upward else exponent + 1
        half = _spacing(whole, precision, upward) / 2
        table[exponent + 160] = math.ceil((2.0**half if upward else 2.0 ** (1 - half)) * 2**23) - (1 << 23)
        if upward:
            table[exponent + 160] = max(table[exponent + 160], 1)
    return table


def _spacing(whole: int, precision: int, upward: bool) -> float:
    """Distance from an integer to the next number of ``precision`` bits above it, or below it; 0 has none near."""
    if whole == 0:
        return 0.0
    towards_zero = (whole > 0) is not upward
    binade = math.frexp(abs(whole))[1] - 1
    is_power = abs(whole) & (abs(whole) - 1) == 0
    return 2.0 ** (binade - (precision - 1) - int(towards_zero and is_power))
