"""Instructions of a whole pass of a product's loop over chunks, from machine code: with loads, barrier and planning.

A pass goes once through the barrier, the loads of the next chunk and, as often as a chunk needs, the innermost loop. Of
all ways around that do so the shortest is counted: the one that whole tiles take, without the branches of ragged ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Block", "shortest_pass"]


@dataclass(frozen=True)
class Block:
    """Instructions between two labels or branches. ``following``: blocks that may run next."""

    names: tuple[str, ...]
    following: tuple[int, ...]

    @property
    def loads(self) -> int:
        """Reads of global memory, also those straight to shared memory."""
        return sum(name in ("LDG", "LDGSTS") for name in self.names)

    @property
    def meets(self) -> bool:
        return "BAR" in self.names


#: Where a way around is: the block, whether the barrier was passed, loads passed.
_State = tuple[int, bool, int]


def shortest_pass(blocks: list[Block], hot: range, passes: int, loads: int) -> int | None:
    """Fewest instructions of a way around that has a barrier, ``loads`` loads, and ``passes`` times the blocks ``hot``.

    ``hot``: the innermost loop, or the straight line that a chunk is. ``None``: no way has all of it.
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
    """The last block of ``hot`` from which anything else follows: behind it there may be only the jump back."""
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
