"""ctypes mirrors of the records in cutlass_kernels/cpu/api.h, field by field (``gemmsim_abi`` checks the sizes)."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int32, c_int64, c_uint64, c_void_p

__all__ = ["KINDS", "MAX_BATCH_DIMS", "STEPS", "CastRecord", "GemmArgs", "QuantizeArgs", "Report"]

MAX_BATCH_DIMS = 16
STEPS, KINDS = 4, 10

_Dims = c_int64 * MAX_BATCH_DIMS


class CastRecord(ctypes.Structure):
    _fields_ = [
        ("p", c_int32), ("emin", c_int32), ("mode", c_int32), ("rbits", c_int32), ("flags", c_int32), ("emax", c_int32),
        ("lo", c_double), ("hi", c_double), ("over_neg", c_double), ("over_pos", c_double), ("inf_neg", c_double), ("inf_pos", c_double),
    ]  # fmt: skip


class GemmArgs(ctypes.Structure):
    _fields_ = [
        ("a", c_void_p), ("b", c_void_p), ("c", c_void_p),
        ("a_dtype", c_int32), ("b_dtype", c_int32), ("c_dtype", c_int32), ("batch_dims", c_int32),
        ("m", c_int64), ("n", c_int64), ("k", c_int64),
        ("a_row", c_int64), ("a_col", c_int64), ("b_row", c_int64), ("b_col", c_int64), ("c_row", c_int64), ("c_col", c_int64),
        ("batch_size", _Dims), ("a_batch", _Dims), ("b_batch", _Dims), ("c_batch", _Dims),
        ("cast_a", CastRecord), ("cast_b", CastRecord), ("cast_mul", CastRecord), ("cast_add", CastRecord), ("cast_out", CastRecord),
        ("fused", c_int32), ("arithmetic", c_int32), ("seed", c_uint64), ("threads", c_int32), ("reserved", c_int32),
    ]  # fmt: skip


class Report(ctypes.Structure):
    _fields_ = [
        ("tiles", ((c_int64 * KINDS) * STEPS) * 2),
        ("proofs", c_int32), ("has_directed", c_int32), ("used_any", c_int32), ("reserved", c_int32),
    ]  # fmt: skip


class QuantizeArgs(ctypes.Structure):
    _fields_ = [
        ("src", c_void_p), ("dst", c_void_p),
        ("src_dtype", c_int32), ("dst_dtype", c_int32), ("dims", c_int32), ("site", c_int32),
        ("size", _Dims), ("src_stride", _Dims), ("dst_stride", _Dims),
        ("cast", CastRecord), ("seed", c_uint64), ("threads", c_int32), ("reserved", c_int32),
    ]  # fmt: skip
