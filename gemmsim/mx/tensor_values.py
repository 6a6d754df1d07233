"""Operations on values of block-format tensors: copies, conversions of dtype and device, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.checks import FLOAT_DTYPES
from gemmsim.ops.errors import ShapeError, message

from .autograd import decoded_tensor, encoded_tensor
from .dispatch import implements
from .errors import MXOperatorError
from .tensor import MXTensor

aten = torch.ops.aten
_FORMATS = (None, torch.preserve_format, torch.contiguous_format)


@implements(aten.detach.default)
def detach(t: MXTensor) -> MXTensor:
    """The same memory without gradient."""
    return t.with_parts(torch.Tensor.detach)


@implements(aten.alias.default)
def alias(t: MXTensor) -> MXTensor:
    """The same memory as another tensor."""
    return t.with_parts(aten.alias.default)


def _check_memory_format(memory_format: Any) -> torch.memory_format:
    if memory_format not in _FORMATS:
        asked = f"MXTensor: memory_format={memory_format}"
        raise MXOperatorError(message(asked, "preserve_format and contiguous_format", "Leave it out."))
    return torch.preserve_format if memory_format is None else memory_format


def _copied(t: MXTensor, memory_format: Any) -> MXTensor:
    layout = _check_memory_format(memory_format)
    second = None if t.tensor_scale is None else t.tensor_scale.clone()
    return t.with_parts(lambda part: part.clone(memory_format=layout), tensor_scale=second)


@implements(aten.clone.default)
def clone(t: MXTensor, *, memory_format: Any = None) -> MXTensor:
    """A copy with memory of its own."""
    return _copied(t, memory_format)


@implements(aten.contiguous.default)
def contiguous(t: MXTensor, *, memory_format: Any = torch.contiguous_format) -> MXTensor:
    """Codes and scales without gaps, in row-major order."""
    layout = _check_memory_format(memory_format)
    return t.with_parts(lambda part: part.contiguous(memory_format=layout))


@implements(aten._to_copy.default)
def to_copy(
    t: MXTensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> MXTensor:
    """The same codes for another dtype or on another device."""
    if dtype is not None and dtype not in FLOAT_DTYPES or layout not in (None, torch.strided) or pin_memory:
        asked = f"MXTensor.to: dtype={dtype}, layout={layout}, pin_memory={pin_memory}"
        allowed = "float32, float64, float16, bfloat16 and devices"
        raise MXOperatorError(message(asked, allowed, "Use t.dequantize().to(...)."))
    copy = _copied(t, memory_format)
    if device is not None:
        second = None if copy.tensor_scale is None else copy.tensor_scale.to(device)
        copy = copy.with_parts(lambda part: part.to(device, non_blocking=non_blocking), tensor_scale=second)
    return copy if dtype is None else copy.rebuilt(copy.codes, copy.scales, dtype=dtype)


@implements(aten.copy_.default)
def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Codes of ``source`` into an ``MXTensor``; a plain source is encoded as the target is."""
    if not isinstance(target, MXTensor):
        asked = "copy_ of an MXTensor into a plain tensor"
        raise MXOperatorError(message(asked, "an MXTensor to copy into", "Use target.copy_(source.dequantize())."))
    if target.shape != source.shape:
        asked = f"MXTensor.copy_: {tuple(source.shape)} into {tuple(target.shape)}"
        raise ShapeError(message(asked, "equal shapes", "Expand the source."))
    if not isinstance(source, MXTensor):
        source = encoded_tensor(source, target.format, target.block_dim, target.packing)
    same = (source.format, source.packing, source.block_dim) == (target.format, target.packing, target.block_dim)
    if not same:
        asked = f"MXTensor.copy_: {source!r} into {target!r}"
        raise MXOperatorError(message(asked, "one format, packing and block dim", "Use source.requantize(dim, fmt)."))
    target.codes.copy_(source.codes, non_blocking)
    target.scales.copy_(source.scales, non_blocking)
    if target.tensor_scale is not None and source.tensor_scale is not None:
        target.tensor_scale.copy_(source.tensor_scale, non_blocking)
    return target


@implements(aten.dequantize.self)
def dequantize(t: MXTensor) -> Tensor:
    """The values in the tensor's dtype: what ``MXTensor.dequantize`` is where a transform hides the class."""
    return decoded_tensor(t, t.dtype)


@implements(aten.is_pinned.default)
def is_pinned(t: MXTensor, device: Any = None) -> bool:
    """Whether codes and scales are in page-locked memory."""
    return t.codes.is_pinned() and t.scales.is_pinned()


@implements(aten._pin_memory.default)
def pin_memory(t: MXTensor, device: Any = None) -> MXTensor:
    """A copy in page-locked memory."""
    second = None if t.tensor_scale is None else t.tensor_scale.pin_memory()
    return t.with_parts(torch.Tensor.pin_memory, tensor_scale=second)


@implements(aten.sum.default, aten.sum.dim_IntList)
def sum_(
    t: MXTensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """PyTorch's sum of the values, a plain tensor."""
    values = decoded_tensor(t, t.dtype)
    return values.sum(dtype=dtype) if dim is None else values.sum(tuple(dim), keepdim, dtype=dtype)
