"""The CPU backend: a C library without Python or torch in it, called with raw pointers (cutlass_kernels/cpu)."""

from .block import PACKINGS, decode_blocks, encode_blocks, quantize_blocks
from .block_float import quantize_block_float
from .gathered import Gathered, gathered_gemm
from .gemm import count_overflows, gemm, supported
from .library import ISAS, LibraryError, build_info, isa, set_isa
from .quantize import quantize
from .rows import FUNCTIONS, ROW_SITE, named_steps, run_rows
from .run import Run
from .scales import Scales, scale_table

__all__ = [
    "FUNCTIONS",
    "ISAS",
    "PACKINGS",
    "Gathered",
    "ROW_SITE",
    "LibraryError",
    "Run",
    "Scales",
    "build_info",
    "count_overflows",
    "decode_blocks",
    "encode_blocks",
    "gathered_gemm",
    "gemm",
    "isa",
    "quantize",
    "quantize_block_float",
    "quantize_blocks",
    "named_steps",
    "run_rows",
    "scale_table",
    "set_isa",
    "supported",
]
