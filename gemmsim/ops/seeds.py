"""Seeds of stochastic rounding: where they come from and how one seed serves several operations.

A seed is a 64-bit integer. The bits an element sees are a function of (seed, index, site) only, so equal seeds give
equal results for any number of threads and any tiling.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.abi_constants import Site

from .errors import SeedError, message

__all__ = ["Bits", "Site", "Stream", "at_counter", "check_row", "check_seed", "derive_seed", "draw_seed", "needs_seed"]

_MASK = (1 << 64) - 1
#: The largest index of a first row: 32 bits, so that element indices stay within 64.
MOST_ROWS = (1 << 32) - 1
#: Increment of splitmix64, 2**64 divided by the golden ratio (Steele, Lea, Flood, OOPSLA 2014).
_GOLDEN = 0x9E3779B97F4A7C15


class Stream(IntEnum):
    """The steps of a layer that share one user seed.

    ``FPROP`` uses the seed as it is, the others ``derive_seed`` of it.

    Example:
        >>> list(gs.ops.Stream)[:3]
        [<Stream.FPROP: 0>, <Stream.INPUT: 1>, <Stream.WEIGHT: 2>]
    """

    FPROP = 0
    INPUT = 1
    WEIGHT = 2
    ADDEND = 3
    OUTPUT = 4
    GRAD = 5
    DGRAD = 6
    WGRAD = 7
    ADDEND_GRAD = 8
    DGRAD_OUT = 9
    WGRAD_OUT = 10
    ADDEND_OUT = 11


class Bits(NamedTuple):
    """Where the random bits of an operation come from: ``seed``, None for torch's generator, and ``counter``, which is
    added to it when kernels run (``at_counter``)."""

    seed: int | None = None
    counter: Tensor | None = None


def check_seed(owner: str, seed: object) -> int | None:
    """``seed`` as a signed 64-bit integer, the type operators pass on, or ``None``; ``SeedError`` for anything else."""
    if seed is None:
        return None
    if isinstance(seed, torch.SymInt):
        return seed  # type: ignore[return-value]  # inside torch.compile; checked when the number is known
    # A tracer keeps a number that is only compared a symbol; operator.index would make it a constant.
    if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed <= _MASK >> 1:
        return seed
    allowed = "None or an integer from 0 to 2**64 - 1"
    try:
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(seed, bool) or not 0 <= number <= _MASK:
        do = "Give an int, or None to draw from torch's generator."
        raise SeedError(message(f"{owner}: seed={seed!r}", allowed, do))
    return number - (1 << 64) if number >= 1 << 63 else number


def check_row(owner: str, row: object) -> int:
    """``row`` as an integer, a symbol of compiled code as it is; ``SeedError`` for anything else."""
    if isinstance(row, torch.SymInt):
        return row  # type: ignore[return-value]  # checked when the number is known
    # A tracer keeps a number that is only compared a symbol; operator.index would make it a constant.
    if isinstance(row, int) and not isinstance(row, bool) and 0 <= row <= MOST_ROWS:
        return row
    try:
        number = operator.index(row)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(row, bool) or not 0 <= number <= MOST_ROWS:
        do = "Give the index of the first row in the whole product, 0 where it is the whole."
        raise SeedError(message(f"{owner}: row={row!r}", "an integer from 0 to 2**32 - 1", do))
    return number


def derive_seed(seed: int, stream: int) -> int:
    """The seed of one step of a layer: ``seed`` for stream 0, otherwise one that is derived from it.

    It is splitmix64 of ``seed`` after ``stream`` increments.

    Example:
        >>> gs.ops.derive_seed(7, gs.ops.Stream.FPROP), gs.ops.derive_seed(7, gs.ops.Stream.WEIGHT)
        (7, 309689372594955804)
    """
    if stream == 0:
        return seed & _MASK
    z = (seed + stream * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def at_counter(seed: int | None, counter: Tensor | None) -> int | None:
    """``seed`` plus the number in ``counter`` (0-dimensional, int64, on the CPU), modulo 2**64, as operators take it:
    a signed integer. None stays None."""
    if seed is None or counter is None:
        return seed
    number = (seed + int(counter)) & _MASK
    return number - (1 << 64) if number >= 1 << 63 else number


def draw_seed() -> int:
    """63 random bits from torch's default CPU generator: ``torch.manual_seed`` makes them repeatable."""
    return int(torch.empty((), dtype=torch.int64).random_())


def needs_seed(spec: GemmSpec) -> bool:
    """Whether a call without ``seed=`` draws one: a rounding of ``spec`` is stochastic and ``spec`` fixes no seed."""
    return spec.is_stochastic and spec.fixed_seed is None
