"""Tables on the device with the order in which terms are read, where lanes are interleaved or terms are shuffled, and
with the operations of schedules.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.lowering.orders import Order, Wrapped, lengths
from gemmsim.lowering.schedule import innermost, keeps_order, schedule

from ...device_tables import Table, Tables
from ...permutation import permutation

__all__ = ["schedule_table", "term_order"]

_Levels = Sequence[tuple[Order, int]]
_tables = Tables(64)


def _places(levels: _Levels, k: int, device: torch.device) -> Tensor:
    """Return 0 to k-1 in the order in which an innermost sum reads them.

    The lanes of every interleaved wrapper follow each other.
    """
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


def _orders(levels: _Levels, shuffle: Shuffled | None, k: int, device: torch.device) -> tuple[Tensor, ...]:
    """Return the index along K of the term that is read at each position.

    A second tensor has the k to which its random bits belong, where that is not the position.
    """
    places = _places(levels, k, device)
    term = places if shuffle is None else permutation(shuffle.seed, k, device).int()[places.long()]
    return (term, places) if any(order == Order.INTERLEAVED for order, _ in levels) else (term,)


def _scheduled(scheduled: Accumulator, shuffle: Shuffled | None, k: int, device: torch.device) -> tuple[Tensor, ...]:
    """Return the operations of a schedule, then the terms as ``_orders`` does, if kernels read them through tables."""
    found = schedule(scheduled, k)
    operations = _copied(found.operations, torch.int64, device)
    in_order = keeps_order(scheduled, innermost(scheduled))
    if in_order and shuffle is None:
        return (operations,)
    if in_order:
        return operations, permutation(shuffle.seed, k, device).int()  # type: ignore[union-attr]
    if found.terms is None:
        places = torch.arange(k, dtype=torch.int64, device=device)
    else:
        places = _copied(found.terms, torch.int64, device)
    term = places if shuffle is None else permutation(shuffle.seed, k, device)[places]
    return operations, term.int(), places.int()


#: Host memory that captured graphs copy from at each replay.
_pinned: list[Tensor] = []


def _copied(numbers: array[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers on ``device``; a graph that is being captured copies them at each replay."""
    host = torch.frombuffer(numbers, dtype=dtype).clone() if len(numbers) else torch.empty(0, dtype=dtype)
    if device.type != "cuda":
        return host
    _pinned.append(host.pin_memory())
    return _pinned[-1].to(device, non_blocking=True)


def schedule_table(scheduled: Accumulator, shuffle: Shuffled | None, k: int, device: torch.device) -> Table:
    """Return the operations of the schedule of ``scheduled`` for ``k`` terms, then what ``term_order`` returns."""
    return _tables.get((scheduled, shuffle, k), device, lambda where: _scheduled(scheduled, shuffle, k, where))


def term_order(wrappers: Sequence[Wrapped], shuffle: Shuffled | None, k: int, device: torch.device) -> Table | None:
    """Return the index of the term at each position for K = ``k``, for a launch that follows; int32.

    A second tensor has the k to which the term's random bits belong, where that is not the position. The result is None
    where terms are read in the order of k. Tables are stored for later calls.
    """
    if not any(w.order.permutes for w in wrappers):
        return None
    levels = tuple((w.order, w.n) for w in wrappers)
    return _tables.get((levels, shuffle, k), device, lambda where: _orders(levels, shuffle, k, where))
