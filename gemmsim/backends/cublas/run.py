"""Computes products of native types: casts of operands, the library's product, the output cast."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ..convert import cast_into, cast_operand, is_conversion
from ..product import Ran
from .gemm_ex import gemm_ex
from .shared_library import library_refuses
from .types import NativeType

__all__ = ["cpu_refuses", "device_refuses", "gemm", "ran", "refuses", "takes_int_mm"]

#: ``torch._int_mm`` on CUDA requires more rows than this.
_INT_MM_ROWS: Final = 16


def ran(backend: str, native: NativeType, how: str) -> Ran:
    """Return the record of one product of a native type, computed by the call ``how`` of "blas" or "cublas"."""
    return Ran(backend, f"native type {native.name} by {how}: the library chooses the order of additions")


def refuses(native: NativeType, a: Tensor, b: Tensor, out: Tensor) -> Refusal | None:
    """Return why this type cannot compute this product (device, shape), or ``None``."""
    if a.device.type == "cpu":
        return cpu_refuses(native)
    return device_refuses(native, a.device) or _refuses_call(native, a, b, out)


_CPU_TYPES: Final = "fp32, fp64, fp16/fp16, fp16/fp32, bf16/fp32"


def cpu_refuses(native: NativeType) -> Refusal | None:
    """Return why PyTorch's BLAS on the CPU does not compute this type, or ``None``.

    Example:
        >>> from gemmsim.backends import cublas
        >>> types = cublas.TYPES
        >>> [name for name, native in types.items() if cublas.cpu_refuses(native) is None][:3]
        ['fp16/fp16', 'fp16/fp32', 'bf16/fp32']
    """
    if native.capabilities:
        return Refusal("the spec names a GPU's instruction; the CPU's BLAS adds differently")
    if native.on_cpu:
        return None
    return Refusal(f"native type {native.name} is for CUDA tensors; on the CPU: {_CPU_TYPES}")


def device_refuses(native: NativeType, device: torch.device) -> Refusal | None:
    """Return why no library computes this type on this device, or ``None``.

    Example:
        >>> from gemmsim.backends import cublas
        >>> native = cublas.TYPES["fp16/fp32"]
        >>> cublas.device_refuses(native, torch.device("cpu")).reason
        'no native products on cpu'
    """
    if device.type != "cuda":
        return Refusal(f"no native products on {device.type}")
    if torch.version.cuda is None:
        return Refusal("this PyTorch is not built for NVIDIA GPUs")
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < native.oldest:
        wanted = ".".join(map(str, native.oldest))
        return Refusal(f"native type {native.name} needs compute capability {wanted}; {device} has {major}.{minor}")
    if native.capabilities and major * 10 + minor not in native.capabilities:
        return Refusal(
            f"the spec names another architecture than that of {device} (compute capability {major}.{minor})"
        )
    if native.call == "none":
        return Refusal(f"cuBLAS has no {native.name}")
    return library_refuses() if native.call == "gemm_ex" else None


def _refuses_call(native: NativeType, a: Tensor, b: Tensor, out: Tensor) -> Refusal | None:
    if native.call == "block_scaled":
        return Refusal(f"native type {native.name} needs operands with block scales, which a tensor does not have")
    m, n, k = out.shape[-2], out.shape[-1], a.shape[-1]
    if k == 0:
        return Refusal("K = 0: there is nothing to multiply")
    if native.call == "gemm_ex":
        return None
    if out.dim() != 2:
        return Refusal(f"native type {native.name} takes two matrices, not batches")
    if native.call == "int_mm" and not takes_int_mm(a, b):
        return Refusal(
            f"native type {native.name} takes M > {_INT_MM_ROWS} and multiples of 8 as N and K, not {(m, n, k)}"
        )
    if native.call == "scaled_mm" and (n % 16 or k % 16):
        return Refusal(f"native type {native.name} takes multiples of 16 as N and K, not {(n, k)}")
    return None


def takes_int_mm(a: Tensor, b: Tensor) -> bool:
    """Whether ``torch._int_mm`` accepts these two matrices on their device.

    Example:
        >>> from gemmsim.backends import cublas
        >>> a = torch.ones(32, 32, dtype=torch.int8)
        >>> cublas.takes_int_mm(a, a)
        True
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    return a.device.type == "cpu" or (m > _INT_MM_ROWS and n % 8 == 0 and k % 8 == 0)


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, native: NativeType) -> Ran:
    """Write the product to ``out``, with the operand and output casts of ``spec`` and the library's sum.

    Arguments as for ``gemmsim.backends.cpu.gemm``; call ``refuses`` first. An integer type cannot represent NaN, so a
    NaN operand makes its row or column of the result NaN.

    Raises:
        CublasError: if cuBLAS refuses the call.
    """
    left = cast_operand(a, spec.cast_a, _wide(native.a), seed, Site.OPERAND_A)
    right = cast_operand(b, spec.cast_b, _wide(native.b), seed, Site.OPERAND_B)
    direct = out.dtype in native.results and is_conversion(spec.out, out.dtype) and out.is_contiguous()
    result = out if direct else torch.empty(out.shape, dtype=native.results[0], device=out.device)
    how = _product(left.to(native.a), right.to(native.b), result, native)
    if not direct:
        cast_into(result, spec.out, out, seed, Site.OUTPUT)
    if native.call == "int_mm":
        nan = left.isnan().any(-1, keepdim=True) | right.isnan().any(-2, keepdim=True)
        out.masked_fill_(nan, torch.nan)
    return ran("blas" if a.device.type == "cpu" else "cublas", native, how)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype of casts that represents all values of an operand dtype, including NaN."""
    return torch.float32 if dtype.itemsize == 1 else dtype


def _product(a: Tensor, b: Tensor, out: Tensor, native: NativeType) -> str:
    """Write the library's product to ``out``; return the name of the call that computed it."""
    if a.device.type == "cpu":
        # Products are exact and sums are fp32. PyTorch in float16 does the same on the CPU, many times slower.
        half = a.dtype == torch.float16
        wide = torch.float32 if half else out.dtype if out.dtype.itemsize > a.dtype.itemsize else a.dtype
        if wide == out.dtype:
            torch.matmul(a.to(wide), b.to(wide), out=out)
        else:
            cast_into(torch.matmul(a.to(wide), b.to(wide)), None, out, 0, 0)
        return f"torch.matmul in {str(wide).removeprefix('torch.')}"
    return _cublas_call(a, b, out, native) if native.call == "gemm_ex" else _torch_call(a, b, out, native)


def _cublas_call(a: Tensor, b: Tensor, out: Tensor, native: NativeType) -> str:
    """Write cuBLAS' product to ``out`` on PyTorch's handle and stream of the tensors' device; return the call's
    name.
    """
    with torch.cuda.device(a.device):
        handle = torch.cuda.current_blas_handle()
        stream = torch.cuda.current_stream(a.device).cuda_stream
        batched = out.dim() > 2
        left, right = (t.reshape(-1, *t.shape[-2:]) if batched else t for t in (a, b))
        gemm_ex(left, right, out.view(-1, *out.shape[-2:]) if batched else out, native.compute, handle, stream)
    return f"cublasGemmEx, compute type {native.compute.name}"


def _torch_call(a: Tensor, b: Tensor, out: Tensor, native: NativeType) -> str:
    """Write PyTorch's product of two matrices with one byte per element to ``out``; return the call's name."""
    if native.call == "int_mm":
        out.copy_(torch._int_mm(a.contiguous(), b.contiguous()))
        return "torch._int_mm"
    one = torch.ones((), device=a.device)
    columns = b.mT.contiguous().mT
    fast = native.fast_accumulation
    product = torch._scaled_mm(
        a.contiguous(), columns, scale_a=one, scale_b=one, out_dtype=out.dtype, use_fast_accum=fast
    )
    out.copy_(product)
    return f"torch._scaled_mm(use_fast_accum={fast})"
