"""Scales of block formats as the C library reads them, separate from their elements."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int32, c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from gemmsim.formats import FloatFormat

__all__ = ["Scales", "ScalesRecord", "scales_record"]


class ScalesRecord(ctypes.Structure):
    """gemmsim::Scales in cutlass_kernels/cpu/product/scales.h."""

    _fields_ = [
        ("a", c_void_p), ("b", c_void_p),
        ("a_row", c_int64), ("a_block", c_int64), ("b_block", c_int64), ("b_col", c_int64),
        ("a_size", c_int64), ("b_size", c_int64), ("a_count", c_int64), ("b_count", c_int64),
        ("fill", c_double), ("tensor", c_double),
        ("has_tensor", c_int32), ("narrow", c_int32), ("emin", c_int32), ("reserved", c_int32),
        ("batch", c_void_p),
    ]  # fmt: skip


@dataclass(frozen=True)
class Scales:
    """Scales of a (\\*B, M, blocks) and of b (\\*B, blocks, N), float64, expanded to the batch of the product.

    They are the part of two encoded operands (``Coded``; one may be a plain tensor) that is not elements, as values
    instead of codes. ``cpu.block_scaled`` makes them.

    ``a_size``, ``b_size``: terms in a block. ``tensor``: the product of the tensors' own scales, None without any.
    ``format``: the format of the scales, for instructions whose result depends on their exponents.
    """

    a: Tensor
    b: Tensor
    a_size: int
    b_size: int
    tensor: float | None
    format: FloatFormat


def scales_record(scales: Scales) -> tuple[ScalesRecord, object]:
    """Return the record, and the objects that must outlive the call with it."""
    a, b = scales.a, scales.b
    batch = (c_int64 * (2 * (a.dim() - 2)))(*a.stride()[:-2], *b.stride()[:-2])
    record = ScalesRecord(a.data_ptr(), b.data_ptr(), *a.stride()[-2:], *b.stride()[-2:])
    record.a_size, record.b_size = scales.a_size, scales.b_size
    record.a_count, record.b_count = a.shape[-1], b.shape[-2]
    record.fill, record.emin = scales.format.decode(0), scales.format.emin
    record.narrow = int(_is_narrow(a, b))
    if scales.tensor is not None:
        record.has_tensor, record.tensor = 1, scales.tensor
    record.batch = ctypes.addressof(batch)
    return record, batch


def _is_narrow(a: Tensor, b: Tensor) -> bool:
    """Whether every product of two scales is exact in float32.

    Scales have up to 16 bits, so this only requires that products are far from both ends of float32's range.
    """
    low, high = 1.0, 1.0
    for x in (a, b):
        magnitude = x.abs()
        finite = torch.where(magnitude > 0, magnitude, 1.0).nan_to_num(1.0, posinf=float("inf"))
        if finite.numel():
            smallest, largest = torch.aminmax(finite)
            low, high = low * float(smallest), high * float(largest)
            if smallest < 2.0**-120 or largest > 2.0**120:
                return False
    return low >= 2.0**-110 and high <= 2.0**120
