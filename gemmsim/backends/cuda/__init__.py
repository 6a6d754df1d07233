"""The CUDA backend: templates of ``cutlass_kernels`` compiled at run time by NVRTC, launched on torch's stream.

Importing it loads no CUDA package; compiling needs the extra ``gemmsim[cuda]`` and no GPU; running needs a GPU.
"""

from .block_float import quantize_tensor
from .block_words import block_core_words, block_words
from .cast import quantize
from .coded import count_coded_overflows, gemm_coded
from .counted import count_events
from .errors import (
    ArchitectureError,
    CacheWarning,
    CompileError,
    CudaError,
    DriverError,
    PackageError,
)
from .gathered import gathered_gemm
from .gemm_codes import gemm_codes
from .gemm_tensor import gemm_tensor_cores
from .instruction_report import (
    collective_questions,
    instruction_questions,
    instruction_specs,
    instruction_verdicts,
)
from .jit.arch import ARCHITECTURES, OLDEST, check_arch
from .jit.cache import KernelCache, kernel_cache
from .jit.compile import CompiledKernel, compile_kernel
from .jit.entry import EntryInfo
from .jit.folder import cache_folder
from .jit.source import KernelSource
from .jit.toolchain import PACKAGES, Toolchain, toolchain
from .lookup import count_lookup_overflows, lookup_gemm, lookup_refuses
from .mx_cast import decode_blocks, encode_blocks, quantize_blocks
from .one_instruction import one_mma
from .products import multiply
from .registry import FAMILIES, Family, family_sources
from .rows import run_rows
from .scaled_casts import affine_cast, scaled_blocks, scaled_cast
from .self_check import Verdict, verdicts
from .simt import count_overflows, finishes, gemm, refuses
from .simt_blocks import count_overflows_blocks, gemm_blocks
from .tensor_cores import (
    allow_tensor_cores,
    exact_sums,
    instruction,
    names_instruction,
    tensor_core_words,
    tensor_cores_allowed,
)

__all__ = [
    "ARCHITECTURES",
    "FAMILIES",
    "OLDEST",
    "PACKAGES",
    "ArchitectureError",
    "CacheWarning",
    "CompileError",
    "CompiledKernel",
    "CudaError",
    "DriverError",
    "EntryInfo",
    "Family",
    "KernelCache",
    "KernelSource",
    "PackageError",
    "Toolchain",
    "Verdict",
    "allow_tensor_cores",
    "affine_cast",
    "block_core_words",
    "block_words",
    "cache_folder",
    "check_arch",
    "collective_questions",
    "compile_kernel",
    "count_coded_overflows",
    "count_events",
    "count_lookup_overflows",
    "count_overflows",
    "count_overflows_blocks",
    "decode_blocks",
    "encode_blocks",
    "exact_sums",
    "family_sources",
    "finishes",
    "gathered_gemm",
    "gemm",
    "gemm_blocks",
    "gemm_coded",
    "gemm_codes",
    "gemm_tensor_cores",
    "instruction",
    "instruction_questions",
    "instruction_specs",
    "instruction_verdicts",
    "kernel_cache",
    "lookup_gemm",
    "lookup_refuses",
    "multiply",
    "names_instruction",
    "one_mma",
    "quantize",
    "quantize_blocks",
    "quantize_tensor",
    "refuses",
    "run_rows",
    "scaled_blocks",
    "scaled_cast",
    "tensor_core_words",
    "tensor_cores_allowed",
    "toolchain",
    "verdicts",
]
