"""Element-wise rounding of nested lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..formats import Cast, Format, parse_cast
from .philox import Site, element_draws
from .rounding import round_value

__all__ = ["quantize"]


def quantize(values: Any, cast: str | Format | Cast, seed: int = 0, site: int = Site.QUANTIZE, start: int = 0) -> Any:
    """``values`` (a number, nested lists of numbers, or an array with ``tolist``) with each number rounded to ``cast``.

    The random number of a stochastic rounding belongs to the row-major index of the element, counted from ``start``.
    NaN, infinities, -0 and overflow as ``round_value``.

    Example:
        >>> gs.reference.quantize([[0.3, 17.1], [1e6, -0.0]], "e4m3/sat")
        [[0.3125, 18.0], [448.0, -0.0]]
    """
    cast = parse_cast(cast)
    nested = values.tolist() if hasattr(values, "tolist") else values
    return _rounded(nested, cast, _draws(cast, seed, site, start))


def _rounded(values: Any, cast: Cast, draws: Iterator[int | None]) -> Any:
    if isinstance(values, (list, tuple)):
        return [_rounded(value, cast, draws) for value in values]
    return round_value(values, cast, next(draws))


def _draws(cast: Cast, seed: int, site: int, start: int) -> Iterator[int | None]:
    while not cast.is_stochastic:
        yield None
    # 64 at a time: a whole number of Philox blocks at once.
    while True:
        stop = start - start % 64 + 64
        yield from element_draws(seed, start, stop, site, cast.rounding.bits)
        start = stop
