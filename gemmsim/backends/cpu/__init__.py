"""The CPU backend: a C library without Python or torch in it, called with raw pointers (cutlass_kernels/cpu)."""

from .block import PACKINGS, decode_blocks, encode_blocks, quantize_blocks
from .block_float import quantize_tensor
from .block_scaled import count_coded_overflows, finishes, gemm_coded
from .dispatch import instruction, multiply, names_instruction
from .event_counting import count_events
from .gemm import count_overflows, gemm, refuses
from .implicit_im2col import gathered_gemm
from .kernel_report import Kernels
from .lookup import count_lookup_overflows, lookup_gemm, lookup_refuses
from .quantize import quantize
from .rows import named_steps, run_rows
from .scaled_cast import AMAX_NOT_FINITE, NEGATIVE_INPUT, affine_cast, scaled_blocks, scaled_cast
from .scales import Scales
from .shared_library import ISAS, LibraryError, build_info, isa, set_isa

__all__ = [
    "AMAX_NOT_FINITE",
    "ISAS",
    "NEGATIVE_INPUT",
    "PACKINGS",
    "LibraryError",
    "Kernels",
    "Scales",
    "affine_cast",
    "build_info",
    "count_coded_overflows",
    "count_events",
    "count_lookup_overflows",
    "count_overflows",
    "decode_blocks",
    "encode_blocks",
    "finishes",
    "gathered_gemm",
    "gemm",
    "gemm_coded",
    "isa",
    "lookup_gemm",
    "lookup_refuses",
    "instruction",
    "multiply",
    "names_instruction",
    "quantize",
    "quantize_tensor",
    "quantize_blocks",
    "named_steps",
    "refuses",
    "run_rows",
    "scaled_blocks",
    "scaled_cast",
    "set_isa",
]
