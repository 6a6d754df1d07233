"""The CPU backend: a C library without Python or torch in it, called with raw pointers (cutlass_kernels/cpu)."""

from .block import PACKINGS, decode_blocks, encode_blocks, quantize_blocks
from .block_float import quantize_tensor
from .gathered import Gathered, gathered_gemm
from .gemm import count_overflows, gemm, supported
from .library import ISAS, LibraryError, build_info, isa, set_isa
from .lookup import count_lookup_overflows, lookup_gemm, lookup_supported
from .quantize import quantize
from .rows import FUNCTIONS, ROW_SITE, named_steps, run_rows
from .run import Run
from .scaled_cast import AMAX_NOT_FINITE, NEGATIVE_INPUT, GridNumbers, affine_cast, scaled_blocks, scaled_cast
from .scales import Scales, scale_table

__all__ = [
    "FUNCTIONS",
    "AMAX_NOT_FINITE",
    "ISAS",
    "NEGATIVE_INPUT",
    "PACKINGS",
    "Gathered",
    "ROW_SITE",
    "GridNumbers",
    "LibraryError",
    "Run",
    "Scales",
    "affine_cast",
    "build_info",
    "count_lookup_overflows",
    "count_overflows",
    "decode_blocks",
    "encode_blocks",
    "gathered_gemm",
    "gemm",
    "isa",
    "lookup_gemm",
    "lookup_supported",
    "quantize",
    "quantize_tensor",
    "quantize_blocks",
    "named_steps",
    "run_rows",
    "scaled_blocks",
    "scaled_cast",
    "scale_table",
    "set_isa",
    "supported",
]
