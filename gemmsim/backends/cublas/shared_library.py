"""Finds the cuBLAS library that torch has loaded, and declares its functions for ctypes."""

from __future__ import annotations

import ctypes
import sys
import threading
from ctypes import POINTER, c_int, c_int64, c_longlong, c_void_p
from pathlib import Path
from typing import Any, Final

from gemmsim.lowering.refusal import Refusal

__all__ = ["CublasError", "check", "cublas", "declare", "find_library", "library_refuses"]

#: cublasStatus_t (cublas_api.h).
STATUS: Final = {
    0: "CUBLAS_STATUS_SUCCESS",
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}
_MAPS = "/proc/self/maps"
_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


class CublasError(RuntimeError):
    """A call of cuBLAS failed. ``status`` is the name of the status that it returned.

    Example:
        >>> from gemmsim.backends import cublas
        >>> cublas.CublasError("cublasGemmEx failed", "CUBLAS_STATUS_NOT_SUPPORTED").status
        'CUBLAS_STATUS_NOT_SUPPORTED'
    """

    def __init__(self, text: str, status: str) -> None:
        super().__init__(text)
        self.status = status


def find_library(maps: str = _MAPS) -> Path | None:
    """Return the path of the libcublas that is mapped into this process, which torch uses; ``None`` if there is
    none.
    """
    try:
        lines = Path(maps).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("libcublas.so"):
            return path
    return None


def library_refuses() -> Refusal | None:
    """Return why cuBLAS cannot be called by name, or ``None`` if it can."""
    if _loaded is not None:
        return None
    if not sys.platform.startswith("linux"):
        return Refusal("cublasGemmEx is looked up in a shared library of Linux")
    path = find_library()
    if path is None:
        return Refusal("torch has loaded no libcublas")
    if not hasattr(ctypes.CDLL(str(path)), "cublasGemmEx_64"):
        return Refusal(f"{path.name} has no cublasGemmEx_64: it is older than CUDA 12")
    return None


def cublas() -> ctypes.CDLL:
    """Return the library with the signatures of the functions used here. Call ``library_refuses()`` first."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = declare(ctypes.CDLL(str(find_library())))
    return _loaded


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Return ``library`` with argument types declared (cublas_api.h of CUDA 12 and 13)."""
    operand: list[Any] = [c_void_p, c_int, c_int64]
    sizes: list[Any] = [c_int, c_int, c_int64, c_int64, c_int64, c_void_p]
    library.cublasGemmEx_64.argtypes = [c_void_p, *sizes, *operand, *operand, c_void_p, *operand, c_int, c_int]
    strided: list[Any] = [*operand, c_longlong]
    library.cublasGemmStridedBatchedEx_64.argtypes = [
        c_void_p, *sizes, *strided, *strided, c_void_p, *strided, c_int64, c_int, c_int,
    ]  # fmt: skip
    library.cublasSetStream_v2.argtypes = [c_void_p, c_void_p]
    library.cublasGetStream_v2.argtypes = [c_void_p, POINTER(c_void_p)]
    library.cublasGetMathMode.argtypes = [c_void_p, POINTER(c_int)]
    library.cublasSetMathMode.argtypes = [c_void_p, c_int]
    library.cublasGetPointerMode_v2.argtypes = [c_void_p, POINTER(c_int)]
    library.cublasSetPointerMode_v2.argtypes = [c_void_p, c_int]
    for name in ("GemmEx_64", "GemmStridedBatchedEx_64", "SetStream_v2", "GetStream_v2", "GetMathMode", "SetMathMode"):
        getattr(library, f"cublas{name}").restype = c_int
    return library


def check(status: int, call: str) -> None:
    """Raise ``CublasError`` unless ``status`` is success."""
    if status:
        name = STATUS.get(status, f"status {status}")
        raise CublasError(f"{call} returned {name}.\n  Leave cublas_acceleration for this product.", name)
