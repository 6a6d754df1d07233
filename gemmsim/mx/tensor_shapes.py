"""Operations on shapes of block-format tensors: codes and scales move, blocks stay whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.errors import ShapeError, message

from .arguments import check_dim
from .dispatch import implements
from .errors import MXOperatorError
from .layout import block_count, byte_count, check_slice, infer_shape, unit, viewed_dim
from .tensor import MXTensor

aten = torch.ops.aten


def _sized(t: MXTensor, shape: Sequence[int], place: int, operation: Callable[[Tensor, list[int]], Tensor]) -> MXTensor:
    """``operation`` with the sizes that codes and scales have where the tensor has ``shape``, blocks at ``place``."""
    codes, scales = list(shape), list(shape)
    codes[place], scales[place] = byte_count(shape[place], t.packing), block_count(shape[place], t.format)
    return t.rebuilt(operation(t.codes, codes), operation(t.scales, scales), dim=place, size=shape[place])


def _along(t: MXTensor, dim: int) -> tuple[int, bool]:
    """``dim`` counted from the end, and whether blocks lie along it."""
    place = check_dim("MXTensor", t.ndim, dim) - t.ndim
    return place, place == t.block_dim


def _refuse(t: MXTensor, operator: str, do: str) -> ShapeError:
    asked = f"MXTensor.{operator} along dim {t.block_dim}, the dimension of the blocks"
    return ShapeError(message(asked, "other dimensions", do))


@implements(aten.transpose.int)
def transpose(t: MXTensor, dim0: int, dim1: int) -> MXTensor:
    """Two dimensions exchanged."""
    order = list(range(t.ndim))
    first, second = check_dim("MXTensor", t.ndim, dim0), check_dim("MXTensor", t.ndim, dim1)
    order[first], order[second] = second, first
    return permute(t, order)


@implements(aten.t.default)
def t_(t: MXTensor) -> MXTensor:
    """A matrix transposed; a vector as it is."""
    if t.ndim > 2:
        raise ShapeError(message(f"MXTensor.t of {t.ndim} dimensions", "two or fewer", "Use t.mT or t.transpose."))
    return permute(t, list(range(t.ndim))[::-1])


@implements(aten.permute.default, aten.numpy_T.default)
def permute(t: MXTensor, dims: Sequence[int] | None = None) -> MXTensor:
    """Dimensions in another order."""
    order = [check_dim("MXTensor", t.ndim, d) for d in (range(t.ndim - 1, -1, -1) if dims is None else dims)]
    if sorted(order) != list(range(t.ndim)):
        asked = f"MXTensor.permute: {tuple(order)} of {t.ndim} dimensions"
        raise ShapeError(message(asked, "each dimension once", "Check the order."))
    return t.with_parts(lambda part: part.permute(order), dim=order.index(t.ndim + t.block_dim) - t.ndim)


@implements(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default)
def view(t: MXTensor, shape: Sequence[int], *unused: Any) -> MXTensor:
    """Another shape that keeps blocks whole; copies where the codes cannot be viewed so."""
    new = infer_shape(t.numel(), shape)
    place = viewed_dim(t.shape, t.block_dim, new, unit(t.format, t.packing))
    return _sized(t, new, place, lambda part, sizes: part.reshape(sizes))


@implements(aten.expand.default)
def expand(t: MXTensor, size: Sequence[int], *, implicit: bool = False) -> MXTensor:
    """Dimensions of one element repeated, new ones in front."""
    given = list(size)
    missing = len(given) - t.ndim
    if missing < 0:
        asked = f"MXTensor.expand: {tuple(t.shape)} to {tuple(given)}"
        raise ShapeError(message(asked, "the same number of dimensions or more", "Add leading dimensions."))
    new = [t.shape[i - missing] if s == -1 and i >= missing else s for i, s in enumerate(given)]
    if new[t.block_dim] != t.shape[t.block_dim]:
        raise _refuse(t, "expand", "Use t.dequantize().expand(...), and gemmsim.mx.to_mx again.")
    return _sized(t, new, t.block_dim, lambda part, sizes: part.expand(sizes))


@implements(aten.unsqueeze.default)
def unsqueeze(t: MXTensor, dim: int) -> MXTensor:
    """A dimension of one element inserted."""
    place = check_dim("MXTensor.unsqueeze", t.ndim + 1, dim)
    old = t.ndim + t.block_dim
    moved = old + (place <= old) - t.ndim - 1
    return t.with_parts(lambda part: part.unsqueeze(place), dim=moved)


@implements(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(t: MXTensor, dim: int | Sequence[int] | None = None) -> MXTensor:
    """Dimensions of one element dropped; that of the blocks stays, and raises where it is named."""
    named = [dim] if isinstance(dim, int) else (range(t.ndim) if dim is None else dim)
    places = [check_dim("MXTensor", t.ndim, d) for d in named]
    drop = [d for d in places if t.shape[d] == 1]
    block = t.ndim + t.block_dim
    if block in drop and dim is not None:
        raise _refuse(t, "squeeze", "Use t.dequantize().squeeze(...).")
    keep = [d for d in range(t.ndim) if d not in drop or d == block]
    return _sized(t, [t.shape[d] for d in keep], keep.index(block) - len(keep), lambda part, sizes: part.reshape(sizes))


@implements(aten.slice.Tensor)
def slice_(t: MXTensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> MXTensor:
    """Elements ``start:end:step``; along the blocks whole blocks only."""
    place, blocks = _along(t, dim)
    if not blocks:
        return t.with_parts(lambda part: aten.slice.Tensor(part, place, start, end, step))
    size = t.shape[place]
    first, last, by = slice(start, end, step).indices(size)
    last = max(first, last)
    check_slice(size, first, last, by, unit(t.format, t.packing))
    bounds = (byte_count(first, t.packing), byte_count(last, t.packing))
    codes = t.codes.narrow(place, bounds[0], bounds[1] - bounds[0])
    bounds = (block_count(first, t.format), block_count(last, t.format))
    scales = t.scales.narrow(place, bounds[0], bounds[1] - bounds[0])
    return t.rebuilt(codes, scales, size=last - first)


@implements(aten.narrow.default)
def narrow(t: MXTensor, dim: int, start: int, length: int) -> MXTensor:
    """``length`` elements from ``start``; along the blocks whole blocks only."""
    return slice_(t, dim, start, start + length)


@implements(aten.select.int)
def select(t: MXTensor, dim: int, index: int) -> MXTensor:
    """One index of a dimension other than that of the blocks."""
    place, blocks = _along(t, dim)
    if blocks:
        raise _refuse(t, "select", "Use t.dequantize().select(...).")
    moved = t.block_dim + (place > t.block_dim)
    return t.with_parts(lambda part: part.select(place, index), dim=moved)


@implements(aten.index_select.default)
def index_select(t: MXTensor, dim: int, index: Tensor) -> MXTensor:
    """Some indices of a dimension other than that of the blocks."""
    place, blocks = _along(t, dim)
    if blocks:
        raise _refuse(t, "index_select", "Use t.dequantize().index_select(...), and gemmsim.mx.to_mx again.")
    return t.with_parts(lambda part: part.index_select(place, index))


@implements(aten.split.Tensor, aten.split_with_sizes.default)
def split(t: MXTensor, sizes: int | Sequence[int], dim: int = 0) -> list[MXTensor]:
    """Parts of a dimension, whole blocks each."""
    place, _ = _along(t, dim)
    total = t.shape[place]
    parts = [min(sizes, total - i) for i in range(0, total, sizes)] if isinstance(sizes, int) else list(sizes)
    starts = [sum(parts[:i]) for i in range(len(parts))]
    return [slice_(t, place, start, start + size) for start, size in zip(starts, parts, strict=True)]


@implements(aten.unbind.int)
def unbind(t: MXTensor, dim: int = 0) -> list[MXTensor]:
    """Every index of a dimension other than that of the blocks."""
    place, _ = _along(t, dim)
    return [select(t, place, i) for i in range(t.shape[place])]


def _check_alike(owner: str, tensors: Sequence[Any]) -> MXTensor:
    """The first tensor; ``MXOperatorError`` unless all are ``MXTensor`` of one format, scale and direction."""
    first = tensors[0]
    for other in tensors:
        if not (isinstance(first, MXTensor) and isinstance(other, MXTensor)):
            asked, do = "a plain tensor together with an MXTensor", "Encode it with gemmsim.mx.to_mx."
        elif (other.format, other.packing) != (first.format, first.packing):
            asked = f"{first.format} ({first.packing}) together with {other.format} ({other.packing})"
            do = "Use t.requantize(dim, fmt)."
        elif other.block_dim != first.block_dim:
            asked, do = f"blocks along dims {first.block_dim} and {other.block_dim}", "Use t.requantize(dim)."
        elif other is not first and not _same_scale(first, other):
            asked, do = "tensors with different tensor_scale", "Encode them with one tensor_scale."
        else:
            continue
        raise MXOperatorError(message(f"{owner}: {asked}", "MXTensors of one format, block dim and tensor scale", do))
    assert isinstance(first, MXTensor)
    return first


def _same_scale(a: MXTensor, b: MXTensor) -> bool:
    if a.tensor_scale is None or b.tensor_scale is None or a.tensor_scale is b.tensor_scale:
        return True
    return torch.equal(a.tensor_scale, b.tensor_scale)


@implements(aten.cat.default)
def cat(tensors: Sequence[Any], dim: int = 0) -> MXTensor:
    """Tensors joined; along the blocks each but the last must end with a block."""
    first = _check_alike("cat", tensors)
    place, blocks = _along(first, dim)
    by = unit(first.format, first.packing)
    if blocks and any(t.shape[place] % by for t in tensors[:-1]):
        asked = f"cat along the blocks of sizes {[t.shape[place] for t in tensors]}"
        do = "Use t.dequantize(), torch.cat and gemmsim.mx.to_mx."
        raise ShapeError(message(asked, f"multiples of {by}, but for the last", do))
    dtype = first.dtype
    for t in tensors[1:]:
        dtype = torch.promote_types(dtype, t.dtype)
    size = sum(t.shape[place] for t in tensors) if blocks else first.shape[first.block_dim]
    codes = torch.cat([t.codes for t in tensors], place)
    return first.rebuilt(codes, torch.cat([t.scales for t in tensors], place), size=size, dtype=dtype)


@implements(aten.stack.default)
def stack(tensors: Sequence[Any], dim: int = 0) -> MXTensor:
    """Tensors of one shape along a new dimension."""
    first = _check_alike("stack", tensors)
    if any(t.shape != first.shape for t in tensors):
        asked = f"stack of shapes {[tuple(t.shape) for t in tensors]}"
        raise ShapeError(message(asked, "equal shapes", "Use torch.cat for others."))
    place = check_dim("MXTensor.stack", first.ndim + 1, dim)
    return cat([unsqueeze(t, place) for t in tensors], place)
