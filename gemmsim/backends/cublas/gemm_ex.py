"""Calls cublasGemmEx on row-major tensors: operands swapped, strides as leading dimensions, handle modes restored.

Flags such as ``torch.backends.cuda.matmul.allow_fp16_accumulation`` belong to the process. Setting one for a call would
change the products that other threads run meanwhile, so this module neither reads nor sets them. The compute type is an
argument. The handle adds the math mode and the pointer mode. They are set on the handle, which torch keeps for this
thread alone, and restored.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_float, c_int, c_int32, c_uint16, c_void_p
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from .shared_library import check, cublas
from .types import Compute

__all__ = ["Layout", "gemm_ex", "layout"]

#: cudaDataType (library_types.h).
_DATA: Final = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.int8: 3,
    torch.int32: 10,
    torch.bfloat16: 14,
}
_N, _T = 0, 1
_DEFAULT_ALGORITHM = -1
#: CUBLAS_DEFAULT_MATH with CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: only the compute type determines the
#: arithmetic, and partial sums of split K are added in it.
_MATH_MODE = 16
_HALF_ONE = 0x3C00


@dataclass(frozen=True)
class Layout:
    """A batch of matrices as cuBLAS reads it: ``op`` (0: unchanged, 1: transposed), leading dimension, batch stride."""

    tensor: Tensor
    op: int
    ld: int
    stride: int


def layout(x: Tensor, aligned: int = 1) -> Layout:
    """Return ``x`` (M, K) or (B, M, K), row-major, as cuBLAS reads its transpose.

    ``x`` is copied if BLAS cannot express its strides. A row-major matrix is a transposed column-major one, so a unit
    stride in the last dimension needs no operation.
    """
    rows, cols = x.shape[-2:]
    row, col = x.stride()[-2:]
    batch = x.stride(0) if x.dim() == 3 else 0
    if col == 1 and row >= max(1, cols) and row % aligned == 0:
        return Layout(x, _N, row, batch)
    if row == 1 and col >= max(1, rows) and col % aligned == 0:
        return Layout(x, _T, col, batch)
    copy = x.clone(memory_format=torch.contiguous_format)
    return Layout(copy, _N, max(1, cols), rows * cols if x.dim() == 3 else 0)


def _scalars(compute: Compute) -> tuple[Any, Any]:
    """Return alpha = 1 and beta = 0 in the type that ``compute`` requires."""
    if compute in (Compute.F16, Compute.F16_PEDANTIC):
        return c_uint16(_HALF_ONE), c_uint16(0)
    if compute in (Compute.F64, Compute.F64_PEDANTIC):
        return c_double(1.0), c_double(0.0)
    if compute in (Compute.I32, Compute.I32_PEDANTIC):
        return c_int32(1), c_int32(0)
    return c_float(1.0), c_float(0.0)


def gemm_ex(a: Tensor, b: Tensor, out: Tensor, compute: Compute, handle: int, stream: int) -> None:
    """Write ``a @ b`` to ``out``: (M, K) and (K, N), or (B, M, K) and (B, K, N); ``out`` contiguous.

    cuBLAS is column-major. It computes ``out^T = b^T @ a^T``, whose operands and result are the given memory.

    Raises:
        CublasError: with cuBLAS' name of the status.
    """
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    left, right = layout(b), layout(a)
    alpha, beta = _scalars(compute)
    lib = cublas()
    sizes = (left.op, right.op, n, m, k, byref(alpha))
    first = (left.tensor.data_ptr(), _DATA[b.dtype], left.ld)
    second = (right.tensor.data_ptr(), _DATA[a.dtype], right.ld)
    result = (out.data_ptr(), _DATA[out.dtype], max(1, n))
    _use_stream(lib, handle, stream)
    with _Modes(lib, handle):
        if out.dim() == 2:
            status = lib.cublasGemmEx_64(
                handle, *sizes, *first, *second, byref(beta), *result, compute, _DEFAULT_ALGORITHM
            )
            check(status, "cublasGemmEx")
        else:
            status = lib.cublasGemmStridedBatchedEx_64(
                handle, *sizes, *first, left.stride, *second, right.stride, byref(beta), *result, m * n,
                out.shape[0], compute, _DEFAULT_ALGORITHM,
            )  # fmt: skip
            check(status, "cublasGemmStridedBatchedEx")


def _use_stream(lib: ctypes.CDLL, handle: int, stream: int) -> None:
    """Set the handle's stream if it differs.

    As a rule torch has already set it, together with a workspace for that stream. Setting the stream again would
    replace this workspace by cuBLAS' default one.
    """
    now = c_void_p()
    check(lib.cublasGetStream_v2(handle, byref(now)), "cublasGetStream")
    if (now.value or 0) != stream:
        check(lib.cublasSetStream_v2(handle, stream), "cublasSetStream")


class _Modes:
    """Context manager: sets the handle's math and pointer modes as ``gemm_ex`` needs them, and restores them."""

    def __init__(self, lib: ctypes.CDLL, handle: int) -> None:
        self._lib, self._handle = lib, handle
        self._math, self._pointer = c_int(), c_int()

    def __enter__(self) -> None:
        check(self._lib.cublasGetMathMode(self._handle, byref(self._math)), "cublasGetMathMode")
        check(self._lib.cublasGetPointerMode_v2(self._handle, byref(self._pointer)), "cublasGetPointerMode")
        check(self._lib.cublasSetMathMode(self._handle, _MATH_MODE), "cublasSetMathMode")
        check(self._lib.cublasSetPointerMode_v2(self._handle, 0), "cublasSetPointerMode")

    def __exit__(self, *_: object) -> None:
        self._lib.cublasSetMathMode(self._handle, self._math.value)
        self._lib.cublasSetPointerMode_v2(self._handle, self._pointer.value)
