"""Native products, as cuBLAS (on the CPU: PyTorch's BLAS) computes them, only where the user requests them.

Operand and output casts are those of the spec, bit for bit. The sum between them is "whatever the silicon does": the
library determines its order, its alignment of products and its rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports
from .block_scaled import block_scaled_mm as block_scaled_mm
from .block_scaled import narrowed as narrowed
from .block_scaled import refuses_shape as refuses_shape
from .matching import native_type as native_type
from .mptorch_matching import ComputeType as ComputeType
from .mptorch_matching import MatrixType as MatrixType
from .mptorch_matching import match_mac_format_with_cublas_types as match_mac_format_with_cublas_types
from .products import explain as explain
from .products import multiply as multiply
from .products import refuses as refuses
from .run import cpu_refuses as cpu_refuses
from .run import device_refuses as device_refuses
from .run import gemm as gemm
from .run import ran as ran
from .run import takes_int_mm as takes_int_mm
from .shared_library import CublasError as CublasError
from .types import FAST_MODES as FAST_MODES
from .types import TYPES as TYPES
from .types import Compute as Compute
from .types import NativeType as NativeType

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
