"""Encodes tensors as operands in block formats, and decodes the values of such operands."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from gemmsim.formats import E8M0, BlockFormat, BlockMode, FixedFormat

from .backend import backend_of
from .division import divided_by
from .encoded_operand import Coded
from .encoded_values import ONE, elements_of, factors_of
from .stored_elements import stored

__all__ = [
    "as_second",
    "encode_operand",
    "scale_for_largest",
    "second_scale_of",
    "tensor_scale_of",
    "values_of",
]


def values_of(x: Tensor | Coded) -> Tensor:
    """Return element times scale times the tensor's scale, exactly: in float32 if that represents them, else float64.

    The values of a plain tensor are the tensor itself.
    """
    if not isinstance(x, Coded):
        return x
    fmt = replace(x.format, tensor_scale=False)
    if _fits_float32(x):
        values = torch.empty(x.shape, dtype=torch.float32, device=x.codes.device)
        if values.numel():
            backend_of(values).decode_blocks(x.codes, x.scales, fmt, values, x.dim, x.packing)
    else:
        factors = factors_of(x).repeat_interleave(fmt.block_size, x.dim).narrow(x.dim, 0, x.size)
        values = elements_of(x, backend_of(x.codes).decode_blocks).double().mul_(factors)
    if not x.format.tensor_scale:
        return values
    if isinstance(x.tensor_scale, float) and _fits_after(x.format, x.tensor_scale):
        return values.mul_(x.tensor_scale)
    return values.double().mul_(x.tensor_scale)


def _fits_float32(x: Coded) -> bool:
    """Whether binary32 represents every product of element and scale.

    Its range reaches low enough for every format, but not always high enough.
    """
    if x.format.scale != E8M0 or x.scales.numel() == 0:
        return True
    # The largest code marks NaN blocks.
    largest = int(torch.where(x.scales == 255, 0, x.scales).amax())
    element, shift = x.format.element, 0
    if x.format.mode is BlockMode.TORCHMX and isinstance(element, FixedFormat):
        shift = element.frac
    return element.max * 2.0 ** (largest - ONE + shift) < 2.0**128


@lru_cache(maxsize=256)
def _fits_after(fmt: BlockFormat, second: float) -> bool:
    """Whether binary32 represents every product of element, scale and ``second``.

    The products must have few enough bits, and none may be too large or too small. A ``second`` that was computed from
    data has 24 bits of its own. Powers of two and other short numbers leave enough bits for the rest.
    """
    element, scale = fmt.element, fmt.scale
    if not isfinite(second) or second == 0:
        return False
    whole, divisor = abs(second).as_integer_ratio()
    lowest = (whole & -whole).bit_length() - divisor.bit_length()
    element_bits = element.bits - 1 if isinstance(element, FixedFormat) else element.p
    bits = element_bits + scale.p + (whole // (whole & -whole)).bit_length()
    smallest = element.quantum_exponent + scale.quantum_exponent + lowest
    return bits <= 24 and smallest >= -149 and element.max * scale.max * abs(second) < 2.0**128


def tensor_scale_of(x: Tensor, fmt: BlockFormat) -> Tensor:
    """Return amax(x) / (largest scale * largest element) as a float32 scalar, at least 2^-96; 1 if ``x`` is empty."""
    return scale_for_largest(x, fmt.scale.max * fmt.element.max)


def scale_for_largest(x: Tensor, largest: float) -> Tensor:
    """``tensor_scale_of`` with the largest number of the format as a plain number, a constant for tracers."""
    if x.numel() == 0:
        return torch.ones((), dtype=torch.float32, device=x.device)
    amax = x.detach().abs().amax()
    if amax.dtype is torch.float64:
        # as when encoding float64: finite values stay finite
        top = torch.finfo(torch.float32).max
        amax = torch.where(amax.isinf(), amax, amax.clamp(max=top))
    return divided_by(amax.to(torch.float32), largest).clamp(min=2.0**-96)


def second_scale_of(x: Tensor, fmt: BlockFormat) -> float | Tensor:
    """Return ``tensor_scale_of`` in the form that a ``Coded`` has: 1 for formats without one, and a tensor on a GPU."""
    return as_second(tensor_scale_of(x, fmt) if fmt.tensor_scale else None)


def as_second(scale: Tensor | None) -> float | Tensor:
    """Return a tensor's own scale in the form that a ``Coded`` has; None (no scale) becomes 1."""
    if scale is None:
        return 1.0
    return scale if scale.is_cuda else float(scale)


def encode_operand(owner: str, x: Tensor, fmt: BlockFormat, dim: int, second: float | Tensor | None = None) -> Coded:
    """Encode ``x`` in ``fmt`` with blocks along ``dim``. In expanded batch dimensions each stored element is encoded
    once.

    ``second`` is the tensor's scale where ``x`` is a part of a tensor. None means that of ``x`` itself.
    """
    if second is None:
        second = second_scale_of(x, fmt)
    x = stored(x, x.dim() - 2)
    shape: list[Any] = list(x.shape)
    shape[dim] = -(-x.shape[dim] // fmt.block_size)
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scales = torch.empty(shape, dtype=torch.uint8, device=x.device)
    if codes.numel():
        backend_of(x).encode_blocks(x, fmt, codes, scales, dim, "bytes", second)
    return Coded(codes, scales, fmt, dim, x.shape[dim], "bytes", second)
