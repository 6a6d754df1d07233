"""Tables on the device: the order in which terms are read, where lanes are interleaved or terms are shuffled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.lowering.numbers import Order, Site
from gemmsim.lowering.program import Wrapped

from ..device_tables import Table, Tables

__all__ = ["term_order"]

_Levels = Sequence[tuple[int, int]]
_MASK = 0xFFFFFFFF
#: Of Philox4x32: multipliers and increments of the key (docs/reference/random_bits.md).
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_tables = Tables(64)


def _places(levels: _Levels, k: int, device: torch.device) -> Tensor:
    """0 to k-1 in the order in which a run reads them: the lanes of every interleaved wrapper one after the other."""
    if not k or all(order != Order.INTERLEAVED for order, _ in levels):
        return torch.arange(k, dtype=torch.int32, device=device)
    (order, n), inner = levels[0], levels[1:]
    if order == Order.SHUFFLED:
        return _places(inner, k, device)
    if order == Order.INTERLEAVED:
        lanes = min(n, k)
        size, longer = divmod(k, lanes)
        first = torch.arange(lanes, dtype=torch.int32, device=device)[:, None]
        long, short = (lanes * _places(inner, terms, device) for terms in (size + 1, size))
        return torch.cat([(first[:longer] + long).view(-1), (first[longer:] + short).view(-1)])
    size = -(-k // n) if order == Order.SPLITK else n
    whole, rest = divmod(k, size)
    starts = torch.arange(whole, dtype=torch.int32, device=device)[:, None] * size
    last = whole * size + _places(inner, rest, device)
    return torch.cat([(starts + _places(inner, size, device)).view(-1), last])


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
    if all(w.order not in (Order.INTERLEAVED, Order.SHUFFLED) for w in wrappers):
        return None
    levels = tuple((w.order, w.n) for w in wrappers)
    return _tables.get((levels, shuffle, k), device, lambda where: _orders(levels, shuffle, k, where))
