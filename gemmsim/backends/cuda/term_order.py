"""Tables on the device: the order in which terms are read, where lanes are interleaved or terms are shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic.shuffled import Shuffled

from ..cpu.program import INTERLEAVED, SHUFFLED, SPLITK, Wrapped

__all__ = ["TermOrder", "term_order"]


@dataclass(frozen=True)
class TermOrder:
    """``term``: index along K of the term read at each position. ``key``: the k its random bits belong to; None where
    that is the position. int32."""

    term: Tensor
    key: Tensor | None


def _permute(wrappers: Sequence[tuple[int, int]], k_of: Tensor) -> Tensor:
    """``k_of`` with the lanes of every interleaved wrapper one after the other."""
    if not wrappers or not len(k_of) or all(order != INTERLEAVED for order, _ in wrappers):
        return k_of
    (order, n), inner = wrappers[0], wrappers[1:]
    k = len(k_of)
    if order == SHUFFLED:
        return _permute(inner, k_of)
    if order == INTERLEAVED:
        used = min(n, k)
        return torch.cat([_permute(inner, k_of[lane::used]) for lane in range(used)])
    size = -(-k // n) if order == SPLITK else n
    return torch.cat([_permute(inner, part) for part in k_of.split(size)])


@lru_cache(maxsize=64)
def _tables(wrappers: tuple[tuple[int, int], ...], shuffle: Shuffled | None, k: int, device: torch.device) -> TermOrder:
    places = _permute(wrappers, torch.arange(k, dtype=torch.int32))
    interleaved = any(order == INTERLEAVED for order, _ in wrappers)
    term = places
    if shuffle is not None:
        term = torch.tensor(shuffle.order(k), dtype=torch.int32)[places.long()]
    return TermOrder(term.to(device), places.to(device) if interleaved else None)


def term_order(wrappers: Sequence[Wrapped], shuffle: Shuffled | None, k: int, device: torch.device) -> TermOrder | None:
    """The tables for K = ``k``; None where terms are read as they are. Kept for later calls."""
    if all(w.order not in (INTERLEAVED, SHUFFLED) for w in wrappers):
        return None
    return _tables(tuple((w.order, w.n) for w in wrappers), shuffle, k, device)
