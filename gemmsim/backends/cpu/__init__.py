"""The CPU backend: a C library without Python or torch in it, called with raw pointers (cutlass_kernels/cpu)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports
from .block import PACKINGS as PACKINGS
from .block import decode_blocks as decode_blocks
from .block import encode_blocks as encode_blocks
from .block import quantize_blocks as quantize_blocks
from .block_float import quantize_tensor as quantize_tensor
from .block_scaled import count_coded_overflows as count_coded_overflows
from .block_scaled import finishes as finishes
from .block_scaled import gemm_coded as gemm_coded
from .dispatch import instruction as instruction
from .dispatch import multiply as multiply
from .dispatch import names_instruction as names_instruction
from .event_counting import count_events as count_events
from .gemm import count_overflows as count_overflows
from .gemm import gemm as gemm
from .gemm import refuses as refuses
from .implicit_im2col import gathered_gemm as gathered_gemm
from .kernel_report import Kernels as Kernels
from .lookup import count_lookup_overflows as count_lookup_overflows
from .lookup import lookup_gemm as lookup_gemm
from .lookup import lookup_refuses as lookup_refuses
from .quantize import quantize as quantize
from .rows import named_steps as named_steps
from .rows import run_rows as run_rows
from .scaled_cast import AMAX_NOT_FINITE as AMAX_NOT_FINITE
from .scaled_cast import NEGATIVE_INPUT as NEGATIVE_INPUT
from .scaled_cast import affine_cast as affine_cast
from .scaled_cast import scaled_blocks as scaled_blocks
from .scaled_cast import scaled_cast as scaled_cast
from .scales import Scales as Scales
from .shared_library import ISAS as ISAS
from .shared_library import LibraryError as LibraryError
from .shared_library import build_info as build_info
from .shared_library import isa as isa
from .shared_library import library_path as library_path
from .shared_library import set_isa as set_isa

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
