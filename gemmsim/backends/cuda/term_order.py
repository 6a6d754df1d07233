"""Tables on the device: the order in which terms are read, where lanes are interleaved or terms are shuffled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.lowering.numbers import Site
from gemmsim.lowering.orders import Order, lengths
from gemmsim.lowering.program import Wrapped

from ..device_tables import Table, Tables

__all__ = ["term_order"]

_Levels = Sequence[tuple[Order, int]]
_MASK = 0xFFFFFFFF
#: Of Philox4x32: multipliers and increments of the key (docs/reference/random_bits.md).
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_tables = Tables(64)


def _places(levels: _Levels, k: int, device: torch.device) -> Tensor:
    """0 to k-1 in the order in which a run reads them: the lanes of every interleaved wrapper one after the other."""
    if not k or all(order != Order.INTERLEAVED for order, _ in levels):
        return torch.arange(k, dtype=torch.int32, device=device)
    (order, n), inner = levels[0], levels[1:]
    parts, first, lanes = [], 0, order == Order.INTERLEAVED
    runs = lengths(order, n, k)
    stride = sum(count for count, _ in runs) if lanes else 1
    for count, size in runs:
        step = 1 if lanes else size
        starts = first + torch.arange(count, dtype=torch.int32, device=device)[:, None] * step
        parts.append((starts + stride * _places(inner, size, device)).view(-1))
        first += count * step
    return torch.cat(parts)


def _permutation(seed: int, k: int, device: torch.device) -> Tensor:
    """``gemmsim.arithmetic.permutation`` by tensor operations, which a graph can capture; int64.

    Products of 32-bit numbers wrap around in int64, which leaves all of their 64 bits as they are.
    """
    zero = torch.zeros(k, dtype=torch.int64, device=device)
    c0, c1, c2, c3 = torch.arange(k, device=device), zero, zero, zero + int(Site.PERMUTATION)
    k0, k1 = seed & _MASK, seed >> 32
    for _ in range(10):
        one, two = (c * m for c, m in zip((c0, c2), _MULTIPLIERS, strict=True))
        c0, c1 = (two >> 32 & _MASK) ^ c1 ^ k0, two & _MASK
        c2, c3 = (one >> 32 & _MASK) ^ c3 ^ k1, one & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    # The top bit turned over: numbers of 64 bits without sign are sorted as such
    return (c0 | (c1 ^ 1 << 31) << 32).argsort(stable=True)


def _orders(levels: _Levels, shuffle: Shuffled | None, k: int, device: torch.device) -> tuple[Tensor, ...]:
    """Index along K of the term read at each place and, where it is not the place, the k its random bits belong to."""
    places = _places(levels, k, device)
    term = places if shuffle is None else _permutation(shuffle.seed, k, device).int()[places.long()]
    return (term, places) if any(order == Order.INTERLEAVED for order, _ in levels) else (term,)


def term_order(wrappers: Sequence[Wrapped], shuffle: Shuffled | None, k: int, device: torch.device) -> Table | None:
    """For K = ``k``, about to be read by a launch: index of the term at each position, and the k that its random bits
    belong to where that is not the position; int32. None where terms are read as they are. Kept for later calls."""
    if not any(w.order.permutes for w in wrappers):
        return None
    levels = tuple((w.order, w.n) for w in wrappers)
    return _tables.get((levels, shuffle, k), device, lambda where: _orders(levels, shuffle, k, where))
