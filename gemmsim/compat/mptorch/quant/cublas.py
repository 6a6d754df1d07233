"""mptorch's functions for cuBLAS: products of native types, on request."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.backends.cublas import ComputeType as CUBLASComputeType
from gemmsim.backends.cublas import MatrixType as CUBLASMatrixType
from gemmsim.backends.cublas import match_mac_format_with_cublas_types

__all__ = [
    "CUBLASComputeType",
    "CUBLASMatrixType",
    "cublas_acceleration",
    "cublas_bmm",
    "cublas_mm",
    "match_mac_format_with_cublas_types",
]


class cublas_acceleration(gs.cublas_acceleration):
    """``gemmsim.cublas_acceleration`` by mptorch's rule: float32 operands of a product in fp16 are rounded to fp16.

    Inside, products of layers and functions, forward and backward, use cuBLAS where
    ``match_mac_format_with_cublas_types`` has types for their format. Such products are fused and rounded to nearest,
    with subnormals and without saturation. Their widths are 5 exponent bits and 10 of the significand (F16 throughout),
    or 8 and 23 (F32, by ``fast_mode``). CPU tensors use PyTorch's product of these types. ``gemmsim.last_backend`` says
    which backend ran, and why it was not cuBLAS. Everything else, including errors (``SpecError``), is as in
    ``gemmsim.cublas_acceleration``.

    Example:
        >>> from gemmsim.compat.mptorch import quant
        >>> with quant.cublas_acceleration(True):
        ...     product = quant.float_mm(torch.ones(2, 3), torch.ones(3, 2), man_add=10, exp_add=5, saturate=False)
        >>> gs.last_backend().backend  # CPU tensors: PyTorch's BLAS
        'blas'
    """

    _ROUNDS_OPERANDS = True


_M: TypeAlias = CUBLASMatrixType
_C: TypeAlias = CUBLASComputeType
#: (operands, result, computation) -> spec and fast mode.
_PRODUCTS: dict[tuple[_M, _M, _C], tuple[str, str | None]] = {
    (_M.F32, _M.F32, _C.F32): (":fp32", None),
    (_M.F32, _M.F32, _C.F32_FAST_F16): (":fp32", "f16"),
    (_M.F32, _M.F32, _C.F32_FAST_BF16): (":fp32", "bf16"),
    (_M.F32, _M.F32, _C.F32_FAST_TF32): (":fp32", "tf32"),
    (_M.F16, _M.F16, _C.F16): ("fp16 * fp16 : fp16", None),
    (_M.F16, _M.F16, _C.F32): ("fp16 * fp16 : fp32 -> fp16", None),
    (_M.F16, _M.F32, _C.F32): ("fp16 * fp16 : fp32", None),
    (_M.BF16, _M.BF16, _C.F32): ("bf16 * bf16 : fp32 -> bf16", None),
    (_M.BF16, _M.F32, _C.F32): ("bf16 * bf16 : fp32", None),
}


def cublas_mm(
    a: Tensor,
    b: Tensor,
    input_type: CUBLASMatrixType,
    output_type: CUBLASMatrixType,
    compute_type: CUBLASComputeType,
    pedantic: bool,
) -> Tensor:
    """The product of two CUDA matrices as cuBLAS computes it: operands cast to ``input_type``, the result in float32.

    The bits are the library's. They are not those of an emulated accumulator.

    Raises:
        NotImplementedError: for tensors that are not on a CUDA device.
        RuntimeError: for types that cuBLAS does not combine, and where cuBLAS does not take the product.

    Example:
        >>> from gemmsim.compat.mptorch.quant import CUBLASComputeType, CUBLASMatrixType, cublas_mm
        >>> half, single = CUBLASMatrixType.F16, CUBLASMatrixType.F32
        >>> cublas_mm(torch.ones(2, 3), torch.ones(3, 2), half, single, CUBLASComputeType.F32, False)  # CPU tensors
        Traceback (most recent call last):
            ...
        NotImplementedError: cublas_mm of tensors on cpu, cpu; allowed: CUDA devices...
    """
    _check_device("cublas_mm", a, b)
    spec, mode = product_of(input_type, output_type, compute_type, pedantic)
    with cublas_acceleration(True, mode):
        out = gs.qmm(a, b, spec, out_dtype=torch.float32)
    _check_backend("cublas_mm")
    return out


def cublas_bmm(
    a: Tensor,
    b: Tensor,
    input_type: CUBLASMatrixType,
    output_type: CUBLASMatrixType,
    compute_type: CUBLASComputeType,
    pedantic: bool,
) -> Tensor:
    """``cublas_mm`` of batches, with the shapes of ``torch.matmul``.

    Raises:
        NotImplementedError, RuntimeError: as ``cublas_mm``.

    Example:
        >>> from gemmsim.compat.mptorch.quant import CUBLASComputeType, CUBLASMatrixType, cublas_bmm
        >>> half, single = CUBLASMatrixType.F16, CUBLASMatrixType.F32
        >>> cublas_bmm(torch.ones(1, 2, 3), torch.ones(3, 2), half, single, CUBLASComputeType.F32, False)  # CPU tensors
        Traceback (most recent call last):
            ...
        NotImplementedError: cublas_bmm of tensors on cpu, cpu; allowed: CUDA devices...
    """
    _check_device("cublas_bmm", a, b)
    spec, mode = product_of(input_type, output_type, compute_type, pedantic)
    with cublas_acceleration(True, mode):
        out = gs.qmatmul(a, b, spec, out_dtype=torch.float32)
    _check_backend("cublas_bmm")
    return out


def product_of(
    operands: CUBLASMatrixType, result: CUBLASMatrixType, computation: CUBLASComputeType, pedantic: bool = False
) -> tuple[str, str | None]:
    """(spec, fast mode) of a combination of types; ``RuntimeError`` for one that cuBLAS does not have."""
    found = _PRODUCTS.get((operands, result, computation))
    if found is None or (pedantic and found[1] is not None):
        known = "; ".join(", ".join(part.name for part in key) for key in _PRODUCTS)
        asked = f"cublas: operands {operands}, result {result}, computation {computation}, pedantic={pedantic}"
        raise RuntimeError(f"{asked}; allowed: {known} (the fast ones not pedantic).\n  Choose one of them.")
    return found[0], "pedantic" if pedantic else found[1]


def _check_device(owner: str, *tensors: Tensor) -> None:
    if any(t.device.type != "cuda" for t in tensors):
        where = ", ".join(str(t.device) for t in tensors)
        raise NotImplementedError(f"{owner} of tensors on {where}; allowed: CUDA devices.\n  Use torch.matmul.")


def _check_backend(owner: str) -> None:
    record = gs.last_backend()
    if record is None or record.backend != "cublas":
        raise RuntimeError(f"{owner}: cuBLAS did not compute this product: {record}")
