"""The CUDA backend: templates of ``cutlass_kernels``, compiled at run time by NVRTC and launched on torch's stream.

Importing it loads no CUDA package. Compiling needs the extra ``gemmsim[cuda]`` and no GPU. Running needs a GPU.
"""

from .casts.block_float import quantize_tensor
from .casts.cast import quantize
from .casts.mx_cast import decode_blocks, encode_blocks, quantize_blocks
from .casts.scaled_casts import affine_cast, scaled_blocks, scaled_cast
from .errors import (
    ArchitectureError,
    CacheWarning,
    CompileError,
    CudaError,
    DriverError,
    PackageError,
)
from .jit.arch import ARCHITECTURES, OLDEST, check_arch
from .jit.cache import KernelCache, kernel_cache
from .jit.cache_dir import cache_folder
from .jit.cache_entry import EntryInfo
from .jit.compile import CompiledKernel, compile_kernel
from .jit.source import KernelSource
from .jit.toolchain import PACKAGES, Toolchain, toolchain
from .products import ON_GPU, multiply
from .registry import FAMILIES, Family, family_sources
from .rows import run_rows
from .simt.block_scaled import count_overflows_blocks, gemm_blocks
from .simt.encoded import count_coded_overflows, gemm_coded
from .simt.event_counting import count_events
from .simt.gemm import count_overflows, finishes, gemm, refuses
from .simt.gemm_codes import gemm_codes
from .simt.implicit_im2col import gathered_gemm
from .simt.lookup import count_lookup_overflows, lookup_gemm, lookup_refuses
from .tensor_cores.block_scaled_mma import gemm_tensor_cores
from .tensor_cores.explain_block_scaled import block_core_words, block_words
from .tensor_cores.one_instruction import one_mma
from .tensor_cores.route import (
    allow_tensor_cores,
    exact_sums,
    instruction,
    names_instruction,
    tensor_core_words,
    tensor_cores_allowed,
)
from .tensor_cores.self_check import Verdict, verdicts
from .tensor_cores.self_check_report import (
    collective_questions,
    instruction_questions,
    instruction_specs,
    instruction_verdicts,
)

__all__ = [
    "ARCHITECTURES",
    "FAMILIES",
    "OLDEST",
    "ON_GPU",
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
