"""The CPU backend: a C library without Python or torch in it, called with raw pointers (cutlass_kernels/cpu)."""

from .gemm import count_overflows, gemm, supported
from .library import ISAS, LibraryError, build_info, isa, set_isa
from .quantize import quantize
from .run import Run

__all__ = [
    "ISAS",
    "LibraryError",
    "Run",
    "build_info",
    "count_overflows",
    "gemm",
    "isa",
    "quantize",
    "set_isa",
    "supported",
]
