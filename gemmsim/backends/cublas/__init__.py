"""Native products, as cuBLAS (on the CPU: PyTorch's BLAS) computes them, only where the user requests them.

Operand and output casts are those of the spec, bit for bit. The sum between them is "whatever the silicon does": the
library determines its order, its alignment of products and its rounding.
"""

from .block_scaled import block_scaled_mm, refuses_shape
from .coded import narrowed
from .matching import native_type
from .mptorch_matching import ComputeType, MatrixType, match_mac_format_with_cublas_types
from .products import explain, multiply, refuses
from .run import cpu_refuses, device_refuses, gemm, ran, takes_int_mm
from .shared_library import CublasError
from .types import FAST_MODES, TYPES, Compute, NativeType

__all__ = [
    "FAST_MODES",
    "TYPES",
    "Compute",
    "ComputeType",
    "CublasError",
    "MatrixType",
    "NativeType",
    "block_scaled_mm",
    "cpu_refuses",
    "device_refuses",
    "explain",
    "gemm",
    "match_mac_format_with_cublas_types",
    "multiply",
    "narrowed",
    "native_type",
    "ran",
    "refuses",
    "refuses_shape",
    "takes_int_mm",
]
