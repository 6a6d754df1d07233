"""The ctypes mirrors of the records in cutlass_kernels/cpu/api.h, field by field.

``gemmsim_abi`` reports the records' sizes, which are compared when the library is loaded.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_double, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import astuple
from functools import lru_cache

from gemmsim.formats import Cast
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, MAX_WRAPPERS
from gemmsim.lowering.cast_numbers import CastNumbers
from gemmsim.lowering.casts import cast_numbers

__all__ = [
    "GEMM_CALL",
    "CastRecord",
    "EventRecord",
    "Extras",
    "GatherRecord",
    "GemmSpecPart",
    "LookupRecord",
    "HardwareRecord",
    "MemberRecord",
    "RegisterRecord",
    "ScheduleRecord",
    "QuantizeArgs",
    "cast_record",
    "packed",
]

_Dims = c_int64 * MAX_BATCH_DIMS


class CastRecord(ctypes.Structure):
    _fields_ = [
        ("p", c_int32), ("emin", c_int32), ("mode", c_int32),
        ("rbits", c_int32), ("flags", c_int32), ("emax", c_int32),
        ("lo", c_double), ("hi", c_double), ("over_neg", c_double), ("over_pos", c_double),
        ("inf_neg", c_double), ("inf_pos", c_double),
    ]  # fmt: skip


def packed(numbers: CastNumbers) -> CastRecord:
    """Return the numbers of a cast as the library reads them."""
    return CastRecord(*astuple(numbers))


@lru_cache(maxsize=4096)
def cast_record(cast: Cast) -> CastRecord:
    """Return the C record of a cast. It is shared, so callers must copy it."""
    return packed(cast_numbers(cast))


class WrapperRecord(ctypes.Structure):
    _fields_ = [("order", c_int32), ("pairs", c_int32), ("n", c_int64), ("cast", CastRecord)]


class RegisterRecord(ctypes.Structure):
    _fields_ = [
        ("bits", c_int32), ("saturate", c_int32), ("at_end", c_int32), ("is_signed", c_int32),
        ("shift", c_int32), ("frac", c_int32),
    ]  # fmt: skip


class HardwareRecord(ctypes.Structure):
    _fields_ = [
        ("kind", c_int32), ("products", c_int32), ("kept", c_int32), ("out", c_int32),
        ("k", c_int32), ("least", c_int32),
        ("group", c_int32),
        ("total_bits", c_int32), ("addend_bits", c_int32), ("halves", c_int32), ("window", c_int32),
        ("a_emin", c_int32), ("b_emin", c_int32), ("first", c_int32),
    ]  # fmt: skip


class ScheduleRecord(ctypes.Structure):
    """The schedule of a product's terms."""

    _fields_ = [
        ("ops", c_void_p), ("count", c_int64), ("terms", c_void_p),
        ("depth", c_int64), ("longest", c_int64), ("shortest", c_int64), ("levels", c_int64),
    ]  # fmt: skip


class MemberRecord(ctypes.Structure):
    """One accumulator of a spec."""

    _fields_ = [
        ("fused", c_int32), ("init", c_int32), ("mul", CastRecord), ("add", CastRecord),
        ("wrapper_count", c_int32), ("method", c_int32),
        ("wrappers", WrapperRecord * MAX_WRAPPERS), ("integer", RegisterRecord),
        ("hardware", HardwareRecord),
        ("permutation", c_void_p), ("schedule", c_void_p),
    ]  # fmt: skip


class GemmSpecPart(ctypes.Structure):
    """The end of GemmArgs: the fields that depend only on the spec."""

    _fields_ = [
        ("arithmetic", c_int32), ("member_count", c_int32),
        ("cast_a", CastRecord), ("cast_b", CastRecord), ("cast_out", CastRecord),
        ("member", MemberRecord), ("members", c_void_p),
    ]  # fmt: skip


class Extras(ctypes.Structure):
    """Fields that only some products need."""

    _fields_ = [
        ("addend", c_void_p), ("select", c_void_p), ("overflows", c_void_p),
        ("addend_row", c_int64), ("addend_col", c_int64), ("select_row", c_int64), ("select_col", c_int64),
        ("batch", c_void_p), ("addend_dtype", c_int32), ("reserved", c_int32),
        ("scales", c_void_p),
    ]  # fmt: skip


class GatherRecord(ctypes.Structure):
    """Index tables of operand A."""

    _fields_ = [
        ("rows", c_void_p), ("cols", c_void_p),
        ("inner", c_int64), ("a_outer", c_int64), ("c_outer", c_int64),
    ]  # fmt: skip


class LookupRecord(ctypes.Structure):
    """The table of products of codes."""

    _fields_ = [("values", c_void_p), ("rows", c_int32), ("columns", c_int32)]


class EventRecord(ctypes.Structure):
    """The counts of events, and the smallest normal numbers of the register and of each wrapper."""

    _fields_ = [("counts", c_void_p), ("least", c_double * (1 + MAX_WRAPPERS))]


#: The beginning of GemmArgs: a b c, three dtypes and batch_dims, m n k, six strides, batch, extras, seed, threads,
#: the first row's index. One call packs them all, because ctypes would take longer than a product of 8x8 matrices.
GEMM_CALL = struct.Struct("@3Q4i3q6qQQQiI")


class QuantizeArgs(ctypes.Structure):
    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p),
        ("src_dtype", c_int32), ("dst_dtype", c_int32), ("dims", c_int32), ("site", c_int32),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims),
        ("cast", CastRecord), ("seed", c_uint64), ("start", c_uint64), ("threads", c_int32), ("reserved", c_int32),
    ]  # fmt: skip
