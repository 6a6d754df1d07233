"""The matching rule of mptorch's ``cublas_acceleration``, for formats given as bit counts."""

from __future__ import annotations

from enum import Enum

__all__ = ["ComputeType", "MatrixType", "match_mac_format_with_cublas_types"]


class MatrixType(Enum):
    """Types of operands and results (``CUBLASMatrixType`` in mptorch).

    Example:
        >>> from gemmsim.backends import cublas
        >>> [one.name for one in cublas.MatrixType][:2]
        ['F32', 'F16']
    """

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"


class ComputeType(Enum):
    """Types of the computation (``CUBLASComputeType`` in mptorch).

    Example:
        >>> from gemmsim.backends import cublas
        >>> [one.name for one in cublas.ComputeType][:2]
        ['F32', 'F16']
    """

    F32 = "F32"
    F16 = "F16"
    F32_FAST_F16 = "F32_FAST_F16"
    F32_FAST_BF16 = "F32_FAST_BF16"
    F32_FAST_TF32 = "F32_FAST_TF32"


_FAST = {
    "f32": ComputeType.F32,
    "f16": ComputeType.F32_FAST_F16,
    "bf16": ComputeType.F32_FAST_BF16,
    "tf32": ComputeType.F32_FAST_TF32,
}


def match_mac_format_with_cublas_types(
    man_add: int,
    exp_add: int,
    man_mul: int,
    exp_mul: int,
    rounding: str,
    fma: bool,
    subnormals: bool,
    saturate: bool,
    fast_mode: str | None = "f32",
) -> tuple[MatrixType, MatrixType, ComputeType] | None:
    """Return the (operand, result, compute) types of a multiply-accumulate in these formats; ``None`` without such
    types.

    Both formats must be equal, and the operation fused, to nearest, with subnormals and without saturation. 23 trailing
    bits and 8 of exponent are float32, with ``fast_mode`` one of its fast forms. 10 and 5 are float16 throughout, to
    which float32 operands are rounded. 7 and 8 (bfloat16) have no type. ``None`` as ``fast_mode`` means "f32".

    Source: docs/design/native.md#mptorchs-rule.

    Example:
        >>> from gemmsim.backends import cublas
        >>> rest = {"rounding": "nearest", "fma": True, "subnormals": True, "saturate": False}
        >>> [one.name for one in cublas.match_mac_format_with_cublas_types(10, 5, 10, 5, **rest)]
        ['F16', 'F16', 'F16']
    """
    if (man_add, exp_add) != (man_mul, exp_mul):
        return None
    if (rounding, fma, subnormals, saturate) != ("nearest", True, True, False):
        return None
    if (man_add, exp_add) == (10, 5):
        return MatrixType.F16, MatrixType.F16, ComputeType.F16
    if (man_add, exp_add) != (23, 8):
        return None
    compute = _FAST.get("f32" if fast_mode is None else fast_mode)
    return None if compute is None else (MatrixType.F32, MatrixType.F32, compute)
