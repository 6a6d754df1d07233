"""Defines the ctypes mirrors of the records in cutlass_kernels/cpu/casts/block.h, and fills the record of a format."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p
from functools import lru_cache

from gemmsim.formats import BlockFormat
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS
from gemmsim.lowering.blocks import BlockRule, block_numbers, decode_factors, encode_factors, log2_steps

__all__ = ["BlockArgs", "BlockRecord", "block_record"]

_Dims = c_int64 * MAX_BATCH_DIMS
_Floats = c_float * 256
_Steps = c_int32 * 320

#: gemmsim::BlockFlags.
_FLAGS = {
    "integer": 1,
    "keeps_infinity": 4,
    "microxcaling": 8,
    "flush": 16,
    "tensor_scale": 32,
    "specials": 64,
}


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
    #: Keeps alive the tables to which the format's pointers point.
    tables: tuple[object, ...] = ()
    _fields_ = [
        ("src", c_void_p), ("codes", c_void_p), ("scales", c_void_p), ("dst", c_void_p),
        ("op", c_int32), ("packing", c_int32), ("src_dtype", c_int32), ("dst_dtype", c_int32),
        ("dims", c_int32), ("threads", c_int32),
        ("k", c_int64), ("src_step", c_int64), ("code_step", c_int64), ("scale_step", c_int64), ("dst_step", c_int64),
        ("size", _Dims), ("src_stride", _Dims), ("code_stride", _Dims), ("scale_stride", _Dims), ("dst_stride", _Dims),
        ("format", BlockRecord),
    ]  # fmt: skip


@lru_cache(maxsize=256)
def block_record(fmt: BlockFormat, precision: int) -> tuple[BlockRecord, tuple[object, ...]]:
    """Return the record of ``fmt``, with ``tensor_scale`` 1, and the tables that it points to.

    The caller must keep the tables alive as long as the record. ``precision`` is the number of significand bits of the
    logarithm.
    """
    numbers = block_numbers(fmt)
    fields = vars(numbers)
    record = BlockRecord(**{name: x for name, x in fields.items() if name not in _FLAGS})
    record.flags = sum(bit for name, bit in _FLAGS.items() if fields[name])
    record.tensor_scale = 1.0
    tables = (
        _Floats(*encode_factors(fmt)),
        _Floats(*decode_factors(fmt)),
        _Steps(*log2_steps(precision, numbers.rule is BlockRule.LOG2_CEIL)),
    )
    record.encode, record.decode, record.log2_from = (ctypes.addressof(table) for table in tables)
    return record, tables
