"""Counts the instructions of a whole pass of a product's loop over chunks, from machine code.

The count includes loads, barrier and the choice of the innermost loop for the next chunk. A pass goes once through the
barrier and the loads of the next chunk, and through the innermost loop as often as a chunk needs. Of all such paths the
shortest is counted. Whole tiles take it; it has no branches for ragged ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Block", "shortest_pass"]


@dataclass(frozen=True)
class Block:
    """Instructions between two labels or branches. ``following``: the blocks that may run next."""

    names: tuple[str, ...]
    following: tuple[int, ...]

    @property
    def loads(self) -> int:
        """Reads of global memory, including those that go directly to shared memory."""
        return sum(name in ("LDG", "LDGSTS") for name in self.names)

    @property
    def meets(self) -> bool:
        return "BAR" in self.names


#: The position on a path: the block, whether the barrier was passed, the number of loads passed.
_State = tuple[int, bool, int]


def shortest_pass(blocks: list[Block], hot: range, passes: int, loads: int) -> int | None:
    """Return the fewest instructions of a path with a barrier, ``loads`` loads, and ``passes`` times the blocks
    ``hot``.

    ``hot`` is the innermost loop, or the straight code of a chunk. The result is ``None`` if no path has all of these.
    """
    inside = sum(len(blocks[i].names) for i in hot)
    start = (_left_from(blocks, hot), any(blocks[i].meets for i in hot), min(loads, sum(blocks[i].loads for i in hot)))
    best: dict[_State, int] = {start: passes * inside}
    queue = [(passes * inside, start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        for after, more in _steps(blocks, hot, state, loads):
            if after[0] in hot:
                if after[1:] == (True, loads) and after[0] == hot[0]:
                    return cost
                continue
            if cost + more < best.get(after, 1 << 60):
                best[after] = cost + more
                heapq.heappush(queue, (cost + more, after))
    return None


def _left_from(blocks: list[Block], hot: range) -> int:
    """Return the last block of ``hot`` that has a successor outside; after it there may be only the jump back."""
    leaving = [i for i in hot if any(to not in hot for to in blocks[i].following)]
    return leaving[-1] if leaving else hot[-1]


def _steps(blocks: list[Block], hot: range, state: _State, loads: int) -> Iterator[tuple[_State, int]]:
    at, met, read = state
    for to in blocks[at].following:
        if to in hot:
            yield (to, met, read), 0
        else:
            block = blocks[to]
            yield (to, met or block.meets, min(loads, read + block.loads)), len(block.names)
