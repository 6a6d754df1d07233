"""Block floating point by definition, in Fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from ..formats import BlockFloatFormat, Cast, FixedFormat, ScaledCast, Sharing, TensorFormat
from .philox import Site, element_draw
from .rounding import round_value

__all__ = ["block_exponent", "blocks_of", "quantize_block_float", "quantize_shared"]

#: Exponent of blocks without a finite element other than zero.
_NO_EXPONENT = 127


def block_exponent(values: Sequence[float]) -> int:
    """floor(log2 of the largest finite magnitude) of a block; 127 if that is zero or there is none."""
    largest = max((abs(x) for x in values if math.isfinite(x)), default=0.0)
    return math.frexp(largest)[1] - 1 if largest else _NO_EXPONENT


def quantize_shared(
    values: Sequence[float],
    fmt: BlockFloatFormat,
    indices: Sequence[int] | None = None,
    seed: int = 0,
    site: int = Site.QUANTIZE,
) -> list[float]:
    """One block with one exponent. ``indices``: row-major positions in the tensor, which decide the random bits.

    Example:
        >>> gs.reference.quantize_shared([1.0, 0.3, 0.01], gs.formats.parse("bfp(8,16)"))
        [1.0, 0.296875, 0.015625]
    """
    step = Fraction(2) ** (block_exponent(values) + 2 - fmt.bits)
    grid = Cast(FixedFormat(53, 0, clamp=False), fmt.rounding)
    found = []
    for place, x in enumerate(values):
        if math.isnan(x) or (fmt.keep_infinity and math.isinf(x)):
            found.append(x)
            continue
        draw = None
        if fmt.is_stochastic:
            draw = element_draw(seed, place if indices is None else indices[place], site, fmt.rounding.bits)
        integer = x if math.isinf(x) else round_value(Fraction(x) / step, grid, draw)
        clamped = max(fmt.min_code, min(fmt.max_code, integer))
        found.append(_float(Fraction(clamped) * step))
    return found


def quantize_block_float(
    values: Any, shape: Sequence[int], fmt: BlockFloatFormat, seed: int = 0, site: int = Site.QUANTIZE, start: int = 0
) -> list[float]:
    """The elements of a tensor of ``shape``, row-major, rounded block by block; random bits as ``reference.quantize``.

    Example:
        >>> gs.reference.quantize_block_float([1.0, 0.3, 100.0, 0.3], (2, 2), gs.formats.parse("bfp(8,2)"))
        [1.0, 0.296875, 100.0, 0.0]
    """
    flat = [float(x) for x in values]
    result = list(flat)
    for places in blocks_of(shape, fmt):
        rounded = quantize_shared([flat[i] for i in places], fmt, [start + i for i in places], seed, site)
        for i, value in zip(places, rounded, strict=True):
            result[i] = value
    return result


def blocks_of(shape: Sequence[int], fmt: TensorFormat) -> list[list[int]]:
    """Row-major positions of the elements of each block of a tensor."""
    blocks: dict[tuple[int, ...], list[int]] = {}
    for place, index in enumerate(product(*map(range, shape))):
        blocks.setdefault(_block_of(index, fmt), []).append(place)
    return list(blocks.values())


def _block_of(index: tuple[int, ...], fmt: TensorFormat) -> tuple[int, ...]:
    if fmt.sharing is Sharing.TENSOR:
        return ()
    dim = fmt.dim % len(index)
    if fmt.sharing is Sharing.INDEX:
        return (index[dim],)
    assert not isinstance(fmt, ScaledCast)
    return (*index[:dim], index[dim] // fmt.block_size, *index[dim + 1 :])


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
