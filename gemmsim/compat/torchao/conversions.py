"""Conversions between tensors and MX with torchao's arguments, layouts and errors."""

from __future__ import annotations

import torch
from torch import Tensor

import gemmsim as gs

from .elements import ceil_div
from .errors import LayoutError, StorageError, message
from .kinds import ElemDType, ScaleCalculationMode, format_name

__all__ = ["get_fp_scale", "swizzle", "to_dtype", "to_mx", "unswizzle"]

_FP4 = (torch.float4_e2m1fn_x2, "fp4_e2m1")


def packing_of(elem_dtype: ElemDType, compat: str = "torchao") -> str:
    """gemmsim's name of the order in which the system packs codes."""
    if elem_dtype not in _FP4:
        return "bytes"
    return "hi_first" if compat == "torchao-0.6.1" else "lo_first"


def storage_dtype(elem_dtype: ElemDType) -> torch.dtype:
    """dtype in which the system keeps codes."""
    return elem_dtype if isinstance(elem_dtype, torch.dtype) and elem_dtype not in _FP4 else torch.uint8


def check_input(data_hp: Tensor, block_size: int) -> None:
    """``StorageError`` for the dtype, ``LayoutError`` for last dimension and strides: both ``AssertionError``."""
    if data_hp.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        asked = f"{data_hp.dtype} is not supported yet"
        raise StorageError(message(asked, "float32, bfloat16 and float16", "Use .bfloat16() or .float()."))
    if data_hp.shape[-1] % block_size:
        asked = f"the last dimension of shape {tuple(data_hp.shape)} must be divisible by block_size {block_size}"
        raise LayoutError(message(asked, "whole blocks", "Fill the last dimension with zeros."))
    if not data_hp.is_contiguous():
        raise LayoutError(message("unsupported strides", "contiguous tensors", "Use .contiguous()."))


def to_mx(
    data_hp: Tensor,
    elem_dtype: ElemDType,
    block_size: int,
    scaling_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR,
    is_swizzled_scales: bool = False,
    *,
    compat: str = "torchao",
) -> tuple[Tensor, Tensor]:
    """Encode ``data_hp`` in MX along its last dimension, bit for bit as torchao does; returns (scale, data).

    ``compat`` names the version: "torchao" (main), "torchao-0.18" or "torchao-0.6.1". Scales are float8_e8m0fnu of
    shape [..., K/block], or flat uint8 for 0.6.1. Data are of ``elem_dtype``, or bytes: one fp6 code each, or two fp4
    codes, the first in the low half (for 0.6.1 in the high half). Codes in NaN blocks are gemmsim's. float16 is
    accepted as well.

    Raises:
        ElementError, StorageError, LayoutError: for other element types and modes, dtypes, sizes and strides; all are
            ``AssertionError``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> scale, data = torchao.to_mx(torch.tensor([[0.3, 1.0, 1.4, 100.0]]), torch.float8_e4m3fn, 4)
        >>> scale.float(), data.float()
        (tensor([[0.2500]]), tensor([[  1.2500,   4.0000,   5.5000, 384.0000]]))
    """
    name = format_name(elem_dtype, block_size, scaling_mode, compat)
    check_input(data_hp, block_size)
    codes, scales, _ = gs.mx.encode(data_hp.detach(), name, packing=packing_of(elem_dtype, compat))
    data = codes.view(storage_dtype(elem_dtype))
    if compat == "torchao-0.6.1":
        return scales.flatten(), data
    typed = scales.view(torch.float8_e8m0fnu)
    return (swizzle(typed) if is_swizzled_scales else typed), data


def swizzle(scales: Tensor) -> Tensor:
    """Scales [..., M, C] in tiled order, each matrix as [32*ceil(M/128), 16*ceil(C/4)]."""
    rows, columns = scales.shape[-2:]
    flat = [gs.mx.to_blocked(matrix) for matrix in scales.view(torch.uint8).reshape(-1, rows, columns)]
    shape = (*scales.shape[:-2], 32 * ceil_div(rows, 128), 16 * ceil_div(columns, 4))
    return torch.stack(flat).view(shape).view(scales.dtype)


def unswizzle(scales: Tensor, rows: int, columns: int) -> Tensor:
    """The [..., rows, columns] scales that ``swizzle`` put in tiled order."""
    flat = scales.contiguous().view(torch.uint8).reshape(-1, scales.shape[-2] * scales.shape[-1])
    found = torch.stack([gs.mx.from_blocked(matrix, rows, columns) for matrix in flat])
    return found.view(*scales.shape[:-2], rows, columns).view(scales.dtype)


def get_fp_scale(scale_e8m0: Tensor) -> Tensor:
    """The float32 values of e8m0 codes: 2^(code - 127), and NaN for 255. Code 0 is 2^-127.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.get_fp_scale(torch.tensor([126, 127, 130, 255], dtype=torch.uint8))
        tensor([0.5000, 1.0000, 8.0000,    nan])
    """
    codes = scale_e8m0.view(torch.uint8)
    values = torch.ldexp(torch.ones_like(codes, dtype=torch.float64), codes.to(torch.int32) - 127).to(torch.float32)
    return torch.where(codes == 255, torch.nan, values)


def to_dtype(
    data_lp: Tensor,
    scale_e8m0: Tensor,
    elem_dtype: ElemDType,
    block_size: int,
    target_dtype: torch.dtype,
    *,
    compat: str = "torchao",
) -> Tensor:
    """The values of ``to_mx``'s result in ``target_dtype``. Element times scale is rounded once to float32.

    Raises:
        ElementError: for unknown element types; it is an ``AssertionError``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> scale, data = torchao.to_mx(torch.tensor([[0.3, 1.0, 1.4, 100.0]]), torch.float8_e4m3fn, 4)
        >>> torchao.to_dtype(data, scale, torch.float8_e4m3fn, 4, torch.float32)
        tensor([[ 0.3125,  1.0000,  1.3750, 96.0000]])
    """
    name = format_name(elem_dtype, block_size, ScaleCalculationMode.FLOOR, compat)
    codes = data_lp.view(torch.uint8)
    packing = packing_of(elem_dtype, compat)
    size = codes.shape[-1] * (1 if packing == "bytes" else 2)
    scales = scale_e8m0.view(torch.uint8).reshape(*codes.shape[:-1], size // block_size)
    return gs.mx.decode((codes, scales), name, packing=packing, dtype=target_dtype)
