"""Steps of torchmx's quantisation that are public there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..torchao import elements
from ..torchao.conversions import get_fp_scale
from .dtypes import SUPPORTED_ELEM_DTYPES, SUPPORTED_FP_ELEM_DTYPES, DType, float4_e2m1, float8_e4m3, int8
from .mx_tensor import dequantize_mx, quantize_mx
from .utils import pack_uint4, unpack_uint4

__all__ = [
    "dequantize_mx",
    "dequantize_to_dtype",
    "get_e8m0_shared_exponent",
    "get_fp_scale",
    "leading_one_position",
    "n_ones",
    "quantize_mx",
    "quantize_mx_with_e8m0_shared_exponent_hw_exact",
    "quantize_mx_with_e8m0_shared_exponent_simulated",
    "round_to_even",
    "unpack_bfloat16",
    "unpack_fp32",
    "unpack_fp64",
]

#: Integers of the same width, and bits of the fraction.
_LAYOUTS = {torch.bfloat16: (torch.int16, 7), torch.float32: (torch.int32, 23), torch.float64: (torch.int64, 52)}
#: Codes of float32 numbers, one to a byte, and back.
_CODECS = {
    "float6_e3m2": (elements.f32_to_f6_e3m2_unpacked, elements.f6_e3m2_unpacked_to_f32),
    "float6_e2m3": (elements.f32_to_f6_e2m3_unpacked, elements.f6_e2m3_unpacked_to_f32),
    "float4_e2m1": (elements.f32_to_f4_unpacked, elements.f4_unpacked_to_f32),
}


def round_to_even(mantissa: Tensor, mantissa_shift: Tensor | int) -> Tensor:
    """``mantissa / 2**mantissa_shift`` to the nearest integer, ties to even; integer tensors, shifts of 0 or more.

    Example:
        >>> from gemmsim.compat.torchmx.mx_quantization_utils import round_to_even
        >>> round_to_even(torch.tensor([83, 109]), torch.tensor([2, 3]))
        tensor([21, 14])
    """
    amount = torch.as_tensor(mantissa_shift, dtype=mantissa.dtype, device=mantissa.device)
    whole = mantissa >> amount
    twice = (mantissa - (whole << amount)) << 1
    unit = torch.ones_like(mantissa) << amount
    up = (twice > unit) | ((twice == unit) & (whole & 1 == 1))
    return whole + up.to(mantissa.dtype)


def n_ones(n: int) -> int:
    """2^n - 1.

    Example:
        >>> from gemmsim.compat.torchmx.mx_quantization_utils import n_ones
        >>> n_ones(4)
        15
    """
    return 2**n - 1


def leading_one_position(mantissa: Tensor, mantissa_size: int = 7) -> Tensor:
    """The position of the highest set bit below ``mantissa_size``, counted from 0; -1 if none is set.

    Example:
        >>> from gemmsim.compat.torchmx.mx_quantization_utils import leading_one_position
        >>> leading_one_position(torch.tensor([0, 1, 6]))
        tensor([-1,  0,  2])
    """
    places = torch.arange(mantissa_size, dtype=mantissa.dtype, device=mantissa.device)
    present = (mantissa[..., None] >> places) & 1
    return (present * (places + 1)).amax(-1) - 1


def _check(what: str, given: object, allowed: Sequence[object]) -> None:
    if given not in allowed:
        raise AssertionError(f"{what} {given}; allowed: {', '.join(map(str, allowed))}")


def _fields(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Sign, biased exponent and fraction, as integers of the same width."""
    _check("dtype", x.dtype, [dtype])
    integers, fraction = _LAYOUTS[dtype]
    whole = x.view(integers)
    exponent = (whole >> fraction) & n_ones(x.element_size() * 8 - 1 - fraction)
    return (whole < 0).to(integers), exponent, whole & n_ones(fraction)


def unpack_bfloat16(x: Tensor, dtype: torch.dtype = torch.uint8) -> tuple[Tensor, Tensor, Tensor]:
    """(sign, biased exponent, fraction) of a bfloat16 tensor as integers of ``dtype``.

    Raises:
        AssertionError: for another dtype.

    Example:
        >>> from gemmsim.compat.torchmx.mx_quantization_utils import unpack_bfloat16
        >>> unpack_bfloat16(torch.tensor([-1.5], dtype=torch.bfloat16))
        (tensor([1], dtype=torch.uint8), tensor([127], dtype=torch.uint8), tensor([64], dtype=torch.uint8))
    """
    sign, exponent, fraction = _fields(x, torch.bfloat16)
    return sign.to(dtype), exponent.to(dtype), fraction.to(dtype)


def unpack_fp32(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(sign, biased exponent, fraction) of a float32 tensor, as uint8, uint8 and int32.

    Raises:
        AssertionError: for another dtype.

    Example:
        >>> from gemmsim.compat.torchmx.mx_quantization_utils import unpack_fp32
        >>> unpack_fp32(torch.tensor([-1.5]))
        (tensor([1], dtype=torch.uint8), tensor([127], dtype=torch.uint8), tensor([4194304], dtype=torch.int32))
    """
    sign, exponent, fraction = _fields(x, torch.float32)
    return sign.to(torch.uint8), exponent.to(torch.uint8), fraction


def unpack_fp64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(sign, biased exponent, fraction) of a float64 tensor, as uint8, int16 and int64.

    Raises:
        AssertionError: for another dtype.

    Example:
        >>> from gemmsim.compat.torchmx.mx_quantization_utils import unpack_fp64
        >>> unpack_fp64(torch.tensor([-1.5], dtype=torch.float64))
        (tensor([1], dtype=torch.uint8), tensor([1023], dtype=torch.int16), tensor([2251799813685248]))
    """
    sign, exponent, fraction = _fields(x, torch.float64)
    return sign.to(torch.uint8), exponent.to(torch.int16), fraction


def get_e8m0_shared_exponent(data_hp: Tensor, elem_dtype: DType) -> Tensor:
    """The scale codes of blocks along the last dimension, which is dropped: uint8, 255 for infinity and NaN.

    Raises:
        AssertionError: for dtypes other than bfloat16 and float32, and unknown element types.

    Example:
        >>> from gemmsim.compat.torchmx import dtypes, mx_quantization_utils
        >>> mx_quantization_utils.get_e8m0_shared_exponent(torch.tensor([[0.3, 100.0]]), dtypes.float4_e2m1)
        tensor([131], dtype=torch.uint8)
    """
    _check("dtype", data_hp.dtype, [torch.bfloat16, torch.float32])
    _check("element type", elem_dtype, SUPPORTED_ELEM_DTYPES)
    largest = _fields(data_hp, data_hp.dtype)[1].amax(-1)
    shared = (largest - elem_dtype.max_pow2).clamp(0, 254)
    return torch.where(largest == 255, 255, shared).to(torch.uint8)


def quantize_mx_with_e8m0_shared_exponent_simulated(
    data_hp: Tensor, elem_dtype: DType, shared_exponent: Tensor, orig_shape: torch.Size | None = None
) -> Tensor:
    """The codes of ``data_hp`` divided by the scales of the codes ``shared_exponent``, which broadcast.

    ``orig_shape`` is the shape of the result, if given. Each code is rounded once to nearest even and saturates; it is
    zero where the scale or the number is NaN. Codes are uint8, or int8 for int8; 4-bit codes are two in each byte, the
    first in bits 4 to 7.

    Raises:
        AssertionError: for an unknown element type.

    Example:
        >>> from gemmsim.compat.torchmx import dtypes, mx_quantization_utils as u
        >>> x, scale = torch.tensor([[0.5, 1.0]]), torch.tensor([[127]], dtype=torch.uint8)
        >>> u.quantize_mx_with_e8m0_shared_exponent_simulated(x, dtypes.float8_e4m3, scale)
        tensor([[48, 56]], dtype=torch.uint8)
    """
    _check("element type", elem_dtype, SUPPORTED_ELEM_DTYPES)
    # in float64 the quotient is exact, and again in float32 where it is not far below the smallest element
    scaled = data_hp.double() / get_fp_scale(shared_exponent).double()
    scaled = scaled.clamp(-elem_dtype.max, elem_dtype.max).nan_to_num(nan=0.0).float()
    scaled = scaled if orig_shape is None else scaled.reshape(orig_shape)
    if elem_dtype == int8:
        return scaled.round().to(torch.int8)
    if elem_dtype == float8_e4m3:
        return scaled.to(torch.float8_e4m3fn).view(torch.uint8)
    codes = _CODECS[elem_dtype.name][0](scaled)
    return pack_uint4(codes) if elem_dtype == float4_e2m1 else codes


def quantize_mx_with_e8m0_shared_exponent_hw_exact(
    data_hp: Tensor, elem_dtype: DType, shared_exponent: Tensor, orig_shape: torch.Size | None = None
) -> Tensor:
    """The same codes as ``quantize_mx_with_e8m0_shared_exponent_simulated``, for bfloat16 and float elements only.

    Raises:
        AssertionError: for other dtypes and element types.

    Example:
        >>> from gemmsim.compat.torchmx import dtypes, mx_quantization_utils as u
        >>> x, scale = torch.tensor([[0.5, 1.0]]).bfloat16(), torch.tensor([[127]], dtype=torch.uint8)
        >>> u.quantize_mx_with_e8m0_shared_exponent_hw_exact(x, dtypes.float8_e4m3, scale)
        tensor([[48, 56]], dtype=torch.uint8)
    """
    _check("dtype", data_hp.dtype, [torch.bfloat16])
    _check("dtype of shared_exponent", shared_exponent.dtype, [torch.uint8])
    _check("element type", elem_dtype, SUPPORTED_FP_ELEM_DTYPES)
    return quantize_mx_with_e8m0_shared_exponent_simulated(data_hp, elem_dtype, shared_exponent, orig_shape)


def dequantize_to_dtype(
    data_lp: Tensor,
    elem_dtype: DType,
    target_dtype: torch.dtype,
    packing_dim: int = -1,
    is_packed_fp4: bool = True,
) -> Tensor:
    """The values of uint8 codes of floats, without scales; 4-bit codes are two in each byte with ``is_packed_fp4``.

    Raises:
        AssertionError: for int8 and unknown element types, and codes of another dtype.

    Example:
        >>> from gemmsim.compat.torchmx import dtypes, mx_quantization_utils
        >>> codes = torch.tensor([0x12], dtype=torch.uint8)
        >>> mx_quantization_utils.dequantize_to_dtype(codes, dtypes.float4_e2m1, torch.float32)
        tensor([0.5000, 1.0000])
    """
    _check("element type", elem_dtype, SUPPORTED_FP_ELEM_DTYPES)
    _check("dtype of codes", data_lp.dtype, [torch.uint8])
    if elem_dtype == float8_e4m3:
        return data_lp.view(torch.float8_e4m3fn).to(target_dtype)
    if elem_dtype == float4_e2m1 and is_packed_fp4:
        data_lp = unpack_uint4(data_lp, packing_dim)
    return _CODECS[elem_dtype.name][1](data_lp).to(target_dtype)
