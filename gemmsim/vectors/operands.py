"""What people give as operands, as matrices, and the formats that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecLike
from gemmsim.formats import Cast, Format

from .errors import vectors_error

__all__ = ["Numbers", "Tensors", "cast_of", "format_of", "format_of_side", "matrices", "numbers_of", "scaled_to"]

Tensors = Tensor | Sequence[Any]

#: Formats of dtypes. Integers of 64 bits, which lists give, are words of 32.
_FORMATS = {
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.bool: "ufixed(1,0)",
    torch.uint8: "ufixed(8,0)",
    torch.int8: "fixed(8,0)",
    torch.int16: "fixed(16,0)",
    torch.int32: "fixed(32,0)",
    torch.int64: "fixed(32,0)",
    torch.uint16: "ufixed(16,0)",
    torch.uint32: "ufixed(32,0)",
}
#: Largest magnitude of an integer that float64 holds with all its neighbours.
_WHOLE = 1 << 53


def matrices(a: Tensors, b: Tensors) -> tuple[Tensor, Tensor]:
    """Both operands as matrices (M, K) and (K, N) on the CPU, in the dtypes that they have.

    Raises:
        ShapeError: for what is no matrix or vector, and sizes that do not multiply.
        DTypeError: for what holds no numbers, and integers beyond 2^53.
        VectorsError: for no rows, terms or columns.
    """
    left, right = _tensor("a", a), _tensor("b", b)
    left = left[None] if left.dim() == 1 else left
    right = right[:, None] if right.dim() == 1 else right
    shapes = f"a {tuple(left.shape)}, b {tuple(right.shape)}"
    if left.dim() != 2 or right.dim() != 2:
        do = "Choose one product of a batch: a[0], b[0]."
        raise gs.ShapeError(f"vectors: {shapes}; allowed: matrices (M, K) and (K, N), or vectors.\n  {do}")
    if left.shape[1] != right.shape[0]:
        do = "Transpose one with .mT if it is stored the other way round, such as a layer's weight (N, K)."
        raise gs.ShapeError(f"vectors: {shapes}; allowed: (M, K) and (K, N) with one K.\n  {do}")
    if 0 in (*left.shape, *right.shape):
        raise vectors_error(f"vectors: {shapes}", "at least one row, term and column", "Leave this product out.")
    return left, right


def _tensor(name: str, x: Tensors) -> Tensor:
    try:
        found = x if isinstance(x, Tensor) else torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise gs.DTypeError(
            f"vectors: {name} is a {type(x).__name__} that is not a tensor: {error}; allowed: a tensor, array or "
            "nested list of numbers.\n  Convert it first."
        ) from None
    if found.is_complex() or (found.dtype not in _FORMATS and found.dtype != torch.float32):
        raise gs.DTypeError(
            f"vectors: {name} has dtype {found.dtype}; allowed: floats and integers of PyTorch.\n  Convert it first."
        )
    found = found.detach().cpu()
    if found.dtype == torch.int64 and found.numel() and int(found.abs().max()) > _WHOLE:
        raise gs.DTypeError(f"vectors: {name} holds integers beyond 2^53; allowed: up to 2^53.\n  Split them.")
    return found


def format_of(x: Tensor) -> Format:
    """The format of a tensor's dtype."""
    return gs.formats.parse_scalar(_FORMATS.get(x.dtype, "fp32"))


def cast_of(spec: gs.GemmSpec, side: int) -> Any:
    """The cast of the first or the second operand: the spec's, else the accumulator's; None for none."""
    given, own = (spec.a, spec.b)[side], spec.accumulator.operand_casts
    return given if given is not None or own is None else own[side]


def format_of_side(spec: gs.GemmSpec, side: int) -> Any:
    """The format of the first or the second operand: that which it is cast to, else float32.

    Raises:
        VectorsError: for a block format.
    """
    given = cast_of(spec, side)
    if given is None:
        return gs.formats.FP32
    if not isinstance(given, Cast):
        raise vectors_error(
            f"operands in {given}, which share scales", "formats with a code for each number", "Name such a format."
        )
    return given.format


@dataclass(frozen=True)
class Numbers:
    """Numbers of a format: the largest, the least, the smallest positive one."""

    format: Any
    most: float
    least: float
    small: float


def numbers_of(spec: gs.GemmSpec, side: int) -> Numbers:
    """The numbers of an operand's format."""
    fmt = format_of_side(spec, side)
    small = fmt.smallest_subnormal if getattr(fmt, "has_subnormals", True) else fmt.smallest_normal
    return Numbers(fmt, float(fmt.max), float(fmt.min), float(small))


@takes_spec()
def scaled_to(x: Tensor, spec: SpecLike, side: int) -> tuple[Tensor, float]:
    """``x`` times a number, and that number: the largest magnitude becomes the largest value of the format.

    Args:
        x: an operand.
        spec: the product; ``x`` is scaled to the format that it casts operand ``side`` (0: a, 1: b) to.
        side: 0 or 1.

    The result is float64 and is not rounded to the format. NaN and infinities are ignored. For zeros alone the
    number is 1. Integer tensors, and operands that the product does not cast, are returned as they are, in their own
    dtype, with the number 1.

    Raises:
        SpecError: for a spec that means nothing.
        VectorsError: for another ``side``, and block formats.

    Example:
        >>> gs.vectors.scaled_to(torch.tensor([[0.5, -0.25]]), "e4m3 : fp32", 0)
        (tensor([[ 448., -224.]], dtype=torch.float64), 896.0)
        >>> gs.vectors.scaled_to(torch.tensor([[448.0, -224.0]]), "e4m3 : fp32", 0)
        (tensor([[ 448., -224.]], dtype=torch.float64), 1.0)
    """
    if side not in (0, 1):
        raise vectors_error(f"scaled_to: side={side!r}", "0 for a, 1 for b", "Give one of them.")
    cast = cast_of(gs.GemmSpec.of(spec), side)
    if cast is not None and not isinstance(cast, Cast):
        raise vectors_error(
            f"operands in {cast}, which share scales", "formats that have a code for each number", "Name such a format."
        )
    if cast is None or not x.is_floating_point():
        return x, 1.0
    wide = x.double()
    finite = wide[wide.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    factor = float(cast.format.max) / largest if largest > 0 else 1.0
    return wide * factor, factor
