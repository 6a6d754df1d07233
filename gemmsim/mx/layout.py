"""Shapes of codes and scales under the operations on shapes: which keep blocks whole, and where the blocks then lie."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from gemmsim.formats import BlockFormat
from gemmsim.ops.errors import ShapeError, message

from .arguments import code_shape

__all__ = ["block_count", "byte_count", "check_slice", "infer_shape", "outer_strides", "room", "unit", "viewed_dim"]


def byte_count(size: int, packing: str) -> int:
    """Bytes that hold ``size`` codes."""
    return code_shape([size], 0, packing)[0]


def block_count(size: int, fmt: BlockFormat) -> int:
    """Blocks of ``size`` elements; the last may be short."""
    return (size + fmt.block_size - 1) // fmt.block_size


def room(bytes_: int, packing: str) -> int:
    """Codes that ``bytes_`` bytes have room for."""
    return {"bytes": bytes_, "dense": bytes_ // 3 * 4}.get(packing, 2 * bytes_)


def unit(fmt: BlockFormat, packing: str) -> int:
    """Elements after which both a block and a byte end: where a tensor can be cut or joined."""
    return math.lcm(fmt.block_size, {"bytes": 1, "dense": 4}.get(packing, 2))


def outer_strides(codes: Tensor, shape: Sequence[int]) -> list[int]:
    """Strides of a tensor of ``shape`` without gaps whose dimensions are nested as those of ``codes``; 0 stays 0."""
    inner = codes.stride()
    order = range(len(shape)) if codes.is_contiguous() else sorted(range(len(shape)), key=lambda i: -inner[i])
    strides, step = [0] * len(shape), 1
    for i in reversed(list(order)):
        if inner[i] == 0 and shape[i] > 1:
            continue
        strides[i] = step
        step *= max(shape[i], 1)
    return strides


def infer_shape(count: int, shape: Sequence[int]) -> list[int]:
    """``shape`` with its -1 replaced by what makes ``count`` elements.

    Raises:
        ShapeError: where there is none, or more than one -1.
    """
    known = math.prod(size for size in shape if size != -1)
    if -1 not in shape:
        whole = known == count
    else:
        whole = known > 0 and count % known == 0
    if not whole or list(shape).count(-1) > 1:
        asked = f"MXTensor.view: {count} elements as {tuple(shape)}"
        raise ShapeError(message(asked, "shapes with the same number of elements", "Check the sizes."))
    return [count // known if size == -1 else size for size in shape]


def viewed_dim(shape: Sequence[int], dim: int, new: Sequence[int], step: int) -> int:
    """Where blocks along ``dim`` (negative) of ``shape`` lie after a reshape to ``new``, counted from the end.

    Whole rows of blocks stay, or are cut or joined at multiples of ``step``.

    Raises:
        ShapeError: where the new shape cuts blocks or folds them with other dimensions.
    """
    size, after = shape[dim], math.prod(shape[len(shape) + dim + 1 :])
    trailing, cut = 1, None
    for place in range(-1, -len(new) - 1, -1):
        if trailing == after:
            if new[place] == size:
                return place
            if cut is None and new[place] % step == 0 and size % step == 0 and new[place] > 0:
                cut = place
        trailing *= new[place]
    if cut is None:
        asked = f"MXTensor.reshape: {tuple(shape)} with blocks along dim {dim} as {tuple(new)}"
        allowed = f"shapes that keep this dimension, or split or join it at multiples of {step}"
        raise ShapeError(message(asked, allowed, "Use t.dequantize().reshape(...), and gemmsim.mx.to_mx again."))
    return cut


def check_slice(size: int, start: int, stop: int, step: int, by: int) -> None:
    """``ShapeError`` unless ``start:stop:step`` of ``size`` elements along the blocks takes whole blocks."""
    if step == 1 and start % by == 0 and (stop == size or stop % by == 0):
        return
    asked = f"MXTensor: elements {start}:{stop}:{step} of {size} along the blocks"
    allowed = f"step 1 and bounds at multiples of {by}, or at the end"
    raise ShapeError(message(asked, allowed, "Use t.dequantize()[...], and gemmsim.mx.to_mx again."))
