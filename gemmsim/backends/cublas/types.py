"""The table of the types of matrix product that libraries compute natively."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import torch

__all__ = ["FAST_MODES", "TYPES", "Compute", "NativeType"]

#: The values of ``fast_mode``: how cuBLAS may compute products of float32 operands in float32, or the form of every
#: type without shortcuts ("pedantic"). None and "f32" are plain float32.
FAST_MODES: Final = ("f32", "tf32", "f16", "bf16", "pedantic")


class Compute(IntEnum):
    """cublasComputeType_t of CUDA 12 and 13 (cublas_api.h).

    Example:
        >>> from gemmsim.backends import cublas
        >>> cublas.Compute.F32.value
        68
    """

    F16 = 64
    F16_PEDANTIC = 65
    F32 = 68
    F32_PEDANTIC = 69
    F64 = 70
    F64_PEDANTIC = 71
    I32 = 72
    I32_PEDANTIC = 73
    F32_FAST_16F = 74
    F32_FAST_16BF = 75
    F32_FAST_TF32 = 77


@dataclass(frozen=True)
class NativeType:
    """One native product.

    ``a``, ``b``: dtypes of the operands. ``results``: dtypes that the library can write, the widest first. ``compute``:
    the compute type in cuBLAS. ``call``: the function that computes it: "gemm_ex" (cublasGemmEx), "int_mm"
    (``torch._int_mm``), "scaled_mm" (``torch._scaled_mm``, whose argument is ``fast_accumulation``), "block_scaled"
    (the same function with scales of blocks, for operands that have them), "none" (no function). ``oldest``: the oldest
    compute capability. ``capabilities``: those whose arithmetic the spec names; empty if it names no architecture.
    ``on_cpu``: whether PyTorch's BLAS on the CPU computes this type.

    Example:
        >>> from gemmsim.backends import cublas
        >>> native = cublas.TYPES["fp16/fp32"]
        >>> native.results, native.call, native.on_cpu
        ((torch.float32, torch.float16), 'gemm_ex', True)
    """

    name: str
    a: torch.dtype
    b: torch.dtype
    results: tuple[torch.dtype, ...]
    compute: Compute
    call: str = "gemm_ex"
    oldest: tuple[int, int] = (7, 0)
    capabilities: tuple[int, ...] = ()
    fast_accumulation: bool = False
    on_cpu: bool = False

    def __str__(self) -> str:
        return self.name


_F16, _BF16, _F32, _F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
_E4M3, _E5M2, _I8, _I32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int32
_AMPERE, _ADA, _BLACKWELL = (8, 0), (8, 9), (10, 0)
_FP8_RESULTS = (_F32, _BF16)


def _fp8(name: str, a: torch.dtype, b: torch.dtype, fast: bool) -> NativeType:
    return NativeType(name, a, b, _FP8_RESULTS, Compute.F32, "scaled_mm", _ADA, fast_accumulation=fast)


def _table() -> dict[str, NativeType]:
    rows = [
        NativeType("fp16/fp16", _F16, _F16, (_F16,), Compute.F16, on_cpu=True),
        NativeType("fp16/fp16 pedantic", _F16, _F16, (_F16,), Compute.F16_PEDANTIC),
        NativeType("fp16/fp32", _F16, _F16, (_F32, _F16), Compute.F32, on_cpu=True),
        NativeType("fp16/fp32 pedantic", _F16, _F16, (_F32, _F16), Compute.F32_PEDANTIC),
        NativeType("bf16/fp32", _BF16, _BF16, (_F32, _BF16), Compute.F32, oldest=_AMPERE, on_cpu=True),
        NativeType("bf16/fp32 pedantic", _BF16, _BF16, (_F32, _BF16), Compute.F32_PEDANTIC, oldest=_AMPERE),
        NativeType("fp32", _F32, _F32, (_F32,), Compute.F32, on_cpu=True),
        NativeType("fp32 pedantic", _F32, _F32, (_F32,), Compute.F32_PEDANTIC),
        NativeType("fp32 fast tf32", _F32, _F32, (_F32,), Compute.F32_FAST_TF32, oldest=_AMPERE),
        NativeType("fp32 fast f16", _F32, _F32, (_F32,), Compute.F32_FAST_16F),
        NativeType("fp32 fast bf16", _F32, _F32, (_F32,), Compute.F32_FAST_16BF, oldest=_AMPERE),
        NativeType("tf32/fp32", _F32, _F32, (_F32,), Compute.F32_FAST_TF32, oldest=_AMPERE),
        NativeType("fp64", _F64, _F64, (_F64,), Compute.F64, on_cpu=True),
        NativeType("fp64 pedantic", _F64, _F64, (_F64,), Compute.F64_PEDANTIC),
        NativeType("int8/int32", _I8, _I8, (_I32,), Compute.I32, "int_mm", (7, 5)),
        NativeType("mxfp8", _E4M3, _E4M3, _FP8_RESULTS, Compute.F32, "block_scaled", _BLACKWELL),
        NativeType("mxfp8 e4m3*e5m2", _E4M3, _E5M2, _FP8_RESULTS, Compute.F32, "block_scaled", _BLACKWELL),
        NativeType("mxfp8 e5m2*e4m3", _E5M2, _E4M3, _FP8_RESULTS, Compute.F32, "block_scaled", _BLACKWELL),
        NativeType("mxfp4", torch.uint8, torch.uint8, _FP8_RESULTS, Compute.F32, "none", _BLACKWELL),
        NativeType("nvfp4", torch.uint8, torch.uint8, _FP8_RESULTS, Compute.F32, "block_scaled", _BLACKWELL),
    ]
    for name, a, b in (("e4m3*e4m3", _E4M3, _E4M3), ("e4m3*e5m2", _E4M3, _E5M2), ("e5m2*e4m3", _E5M2, _E4M3)):
        rows.append(_fp8(f"{name} promoted", a, b, False))
        rows.append(_fp8(f"{name} fast", a, b, True))
    return {row.name: row for row in rows}


#: All native types by name.
TYPES: Final[dict[str, NativeType]] = _table()
