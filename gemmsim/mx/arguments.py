"""Arguments of the conversions: formats, dimensions, packings and the shapes that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.formats import BlockFormat, FixedFormat, parse_block
from gemmsim.formats.lru import remembered
from gemmsim.ops.errors import DTypeError, ShapeError, message
from gemmsim.ops.lazy_dynamo import assume_constant_result

__all__ = [
    "PACKINGS",
    "BlockLike",
    "block_constant",
    "block_key",
    "block_of",
    "check_codes",
    "check_dim",
    "check_packing",
    "code_shape",
    "compatible",
    "largest_constant",
    "packing_constant",
    "scale_shape",
]

BlockLike: TypeAlias = str | BlockFormat

#: How codes lie in bytes: one a byte, two a byte with the first in the low or the high half, four in three bytes.
PACKINGS = ("bytes", "lo_first", "hi_first", "dense")


@remembered
def block_of(text: BlockLike) -> BlockFormat:
    """The block format a string names; parsed once."""
    return parse_block(text)


@assume_constant_result
def block_constant(fmt: BlockLike) -> BlockFormat:
    """``block_of(fmt)``; a constant of compiled code. Tracers read its fields, not its name: ``block_key`` does."""
    return block_of(fmt)


@assume_constant_result
def block_key(fmt: BlockLike) -> str:
    """The canonical name of a block format; a constant of compiled code, whose tracer does not look inside."""
    return str(block_of(fmt))


@assume_constant_result
def compatible(fmt: BlockLike, mode: str) -> tuple[str, str | None]:
    """The name of ``fmt`` in another mode, and the order of that system's packed codes (None: the default)."""
    meaning = replace(block_of(fmt), mode=mode)  # type: ignore[arg-type]
    four = meaning.element.bits == 4 and not isinstance(meaning.element, FixedFormat)
    return str(meaning), "hi_first" if four and mode in ("torchao-0.6.1", "torchmx") else None


def check_dim(owner: str, rank: int, dim: int) -> int:
    """``dim`` counted from 0; ``ShapeError`` unless the tensor has it."""
    if not -rank <= dim < rank:
        raise ShapeError(
            message(f"{owner}: dim={dim} of a tensor of {rank} dimensions", "one of its dimensions", "Give another.")
        )
    return dim % rank


def check_packing(owner: str, fmt: BlockFormat, packing: str | None) -> str:
    """``packing``, or what the format's elements have by default; ``ShapeError`` for one that does not fit them."""
    bits = fmt.element.bits
    if packing is None:
        return "lo_first" if bits == 4 and not isinstance(fmt.element, FixedFormat) else "bytes"
    fitting = ("bytes", *(("lo_first", "hi_first") if bits == 4 else ()), *(("dense",) if bits == 6 else ()))
    if packing not in fitting:
        allowed = f"{', '.join(fitting)} for elements of {bits} bits"
        raise ShapeError(message(f"{owner}: packing={packing!r}", allowed, "Leave packing out for the default."))
    return packing


@assume_constant_result
def largest_constant(fmt: BlockLike) -> float:
    """Largest scale times largest element; a constant of compiled code."""
    meaning = block_of(fmt)
    return float(meaning.scale.max * meaning.element.max)


@assume_constant_result
def packing_constant(owner: str, fmt: BlockLike, packing: str | None) -> str:
    """``check_packing``; a constant of compiled code, whose tracer does not look into formats.

    Raises:
        ShapeError: as ``check_packing``.
    """
    return check_packing(owner, block_of(fmt), packing)


def code_shape(shape: Sequence[int], dim: int, packing: str) -> list[int]:
    """Shape of the bytes that hold the codes of elements of ``shape``."""
    size = shape[dim]
    packed = {"bytes": size, "dense": (size + 3) // 4 * 3}.get(packing, (size + 1) // 2)
    return [*shape[:dim], packed, *shape[dim + 1 :]]


def scale_shape(shape: Sequence[int], dim: int, block_size: int) -> list[int]:
    """Shape of the scales of elements of ``shape``."""
    return [*shape[:dim], (shape[dim] + block_size - 1) // block_size, *shape[dim + 1 :]]


def check_codes(owner: str, name: str, codes: object, shape: Sequence[int] | None = None) -> None:
    """``DTypeError`` unless a strided uint8 tensor, ``ShapeError`` unless of ``shape``."""
    if not isinstance(codes, Tensor) or codes.dtype is not torch.uint8 or codes.layout is not torch.strided:
        what = codes.dtype if isinstance(codes, Tensor) else type(codes).__name__
        do = f"Use {name}.view(torch.uint8) for float8 tensors."
        raise DTypeError(message(f"{owner}: {name} is {what}", "a strided tensor of torch.uint8", do))
    if shape is not None and tuple(codes.shape) != tuple(shape):
        asked = f"{owner}: {name} has shape {tuple(codes.shape)}"
        raise ShapeError(message(asked, f"{tuple(shape)} here", "Give the tensors that encode returned."))
