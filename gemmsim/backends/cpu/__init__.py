"""The CPU backend: a C library without Python or torch in it, called with raw pointers (cutlass_kernels/cpu)."""

from .block import PACKINGS, decode_blocks, encode_blocks, quantize_blocks
from .gemm import count_overflows, gemm, supported
from .library import ISAS, LibraryError, build_info, isa, set_isa
from .quantize import quantize
from .run import Run
from .scales import Scales, scale_table

__all__ = [
    "ISAS",
    "PACKINGS",
    "LibraryError",
    "Run",
    "Scales",
    "build_info",
    "count_overflows",
    "decode_blocks",
    "encode_blocks",
    "gemm",
    "isa",
    "quantize",
    "quantize_blocks",
    "scale_table",
    "set_isa",
    "supported",
]
