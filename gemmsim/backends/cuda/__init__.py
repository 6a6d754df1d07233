"""The CUDA backend: templates of ``cutlass_kernels``, compiled at run time by NVRTC and launched on torch's stream.

Importing it loads no CUDA package. Compiling needs the extra ``gemmsim[cuda]`` and no GPU. Running needs a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports
from .casts.block_float import quantize_tensor as quantize_tensor
from .casts.cast import quantize as quantize
from .casts.mx_cast import decode_blocks as decode_blocks
from .casts.mx_cast import encode_blocks as encode_blocks
from .casts.mx_cast import quantize_blocks as quantize_blocks
from .casts.scaled_casts import affine_cast as affine_cast
from .casts.scaled_casts import scaled_blocks as scaled_blocks
from .casts.scaled_casts import scaled_cast as scaled_cast
from .errors import ArchitectureError as ArchitectureError
from .errors import CacheWarning as CacheWarning
from .errors import CompileError as CompileError
from .errors import CudaError as CudaError
from .errors import DriverError as DriverError
from .errors import PackageError as PackageError
from .jit.arch import ARCHITECTURES as ARCHITECTURES
from .jit.arch import OLDEST as OLDEST
from .jit.arch import check_arch as check_arch
from .jit.cache import EntryInfo as EntryInfo
from .jit.cache import KernelCache as KernelCache
from .jit.cache import kernel_cache as kernel_cache
from .jit.cache_dir import cache_folder as cache_folder
from .jit.compile import CompiledKernel as CompiledKernel
from .jit.compile import compile_kernel as compile_kernel
from .jit.source import KernelSource as KernelSource
from .jit.toolchain import PACKAGES as PACKAGES
from .jit.toolchain import Toolchain as Toolchain
from .jit.toolchain import toolchain as toolchain
from .products import ON_GPU as ON_GPU
from .products import multiply as multiply
from .registry import FAMILIES as FAMILIES
from .registry import Family as Family
from .registry import family_sources as family_sources
from .rows import run_rows as run_rows
from .simt.block_scaled import count_overflows_blocks as count_overflows_blocks
from .simt.block_scaled import gemm_blocks as gemm_blocks
from .simt.encoded import count_coded_overflows as count_coded_overflows
from .simt.encoded import gemm_coded as gemm_coded
from .simt.event_counting import count_events as count_events
from .simt.gemm import count_overflows as count_overflows
from .simt.gemm import finishes as finishes
from .simt.gemm import gemm as gemm
from .simt.gemm import refuses as refuses
from .simt.gemm_codes import gemm_codes as gemm_codes
from .simt.implicit_im2col import gathered_gemm as gathered_gemm
from .simt.lookup import count_lookup_overflows as count_lookup_overflows
from .simt.lookup import lookup_gemm as lookup_gemm
from .simt.lookup import lookup_refuses as lookup_refuses
from .tensor_cores.block_scaled_mma import gemm_tensor_cores as gemm_tensor_cores
from .tensor_cores.explain_block_scaled import block_core_words as block_core_words
from .tensor_cores.explain_block_scaled import block_words as block_words
from .tensor_cores.one_instruction import one_mma as one_mma
from .tensor_cores.route import allow_tensor_cores as allow_tensor_cores
from .tensor_cores.route import exact_sums as exact_sums
from .tensor_cores.route import instruction as instruction
from .tensor_cores.route import names_instruction as names_instruction
from .tensor_cores.route import tensor_core_words as tensor_core_words
from .tensor_cores.route import tensor_cores_allowed as tensor_cores_allowed
from .tensor_cores.self_check import Verdict as Verdict
from .tensor_cores.self_check import verdicts as verdicts
from .tensor_cores.self_check_report import collective_questions as collective_questions
from .tensor_cores.self_check_report import instruction_questions as instruction_questions
from .tensor_cores.self_check_report import instruction_specs as instruction_specs
from .tensor_cores.self_check_report import instruction_verdicts as instruction_verdicts

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
