"""gemv kernels (ALGO_ID 13): lanes of a warp on CUDA cores, whose totals meet in order or by halves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .values import fp32

__all__ = ["OPTIONS", "Layout", "gemv", "halves", "option_5"]


class Layout(NamedTuple):
    """``width`` adjacent terms of a lane (negative: at most so many, by the slice), ``lanes``, tiles of a ``chunk`` (0: all)."""

    width: int
    lanes: int
    chunk: int
    halves: bool


_HALVES = {
    (1, 2): {"": "49 57 63 95"},
    (1, 4): {"": "41 51 59 65 69", "sm_90": "111"},
    (1, 8): {"": "43 53 61 67", "sm_90": "89"},
    (1, 16): {"": "35 45 55 81 91", "sm_90": "101"},
    (1, 32): {"": "37 47 75 83 93"},
    (-64, 2): {"": "48 56 62", "sm_90": "102"},
    (-64, 4): {"": "40 50 58 86", "sm_90": "68 96 110"},
    (-64, 8): {"": "42 52 60 66 98", "sm_90": "106"},
    (-64, 16): {"": "44 54 90", "sm_90": "72 100"},
    (-64, 32): {"": "36 46 82", "sm_90": "74 92"},
}
#: Chunks of the options with a single lane that have any.
_SINGLE = {"sm_90": {0: 512, 7: 256, 8: 256}, "sm_100": {}, "sm_103": {8: 256}}


def _options(gpu: str) -> dict[int, Layout]:
    found = {option: Layout(1, 1, _SINGLE[gpu].get(option, 0), False) for option in (0, 6, 7, 8, 84)}
    found[10] = Layout(4, 32, 0, True)
    found[11] = Layout(1, 16, 32, False)
    found |= {option: Layout(1, 16, 16, False) for option in (12, 13, 14)}
    for (width, lanes), names in _HALVES.items():
        numbers = f"{names['']} {names.get(gpu, '')}".split()
        found |= {int(number): Layout(width, lanes, 0, True) for number in numbers}
    return found


OPTIONS = {gpu: _options(gpu) for gpu in ("sm_90", "sm_100", "sm_103")}


def halves(values: Sequence[np.float32]) -> np.float32:
    """Lane l takes what lane l + W/2 has, then W/4, ..., 1: a warp's shuffle that counts down."""
    lanes = list(values)
    distance = len(lanes) // 2
    while distance:
        for lane in range(distance):
            lanes[lane] = fp32(lanes[lane] + lanes[lane + distance])
        distance //= 2
    return lanes[0]


def _lane(a: Sequence[np.float32], b: Sequence[np.float32], lane: int, layout: Layout, width: int) -> np.float32:
    """What one lane has of a slice: terms t*V*W + l*V + v of tile t, in chunks of tiles."""
    K, tile_terms = len(a), width * layout.lanes
    tiles = -(-K // tile_terms)
    chunk = layout.chunk or max(tiles, 1)
    total = fp32(0)
    for begin in range(0, tiles, chunk):
        inner = fp32(0)
        for tile in range(begin, min(begin + chunk, tiles)):
            first = tile * tile_terms + lane * width
            for k in range(first, min(first + width, K)):
                inner = fp32(inner + a[k] * b[k])
        total = fp32(total + inner)
    return total


def gemv(a: Sequence[np.float32], b: Sequence[np.float32], option: int, gpu: str, splits: int = 1) -> np.float32:
    """The fp32 register. All slices have the width that their full length gives, the short last one, too."""
    if option == 5:
        assert splits == 1
        return option_5(a, b)
    K = len(a)
    layout = OPTIONS[gpu][option]
    share = -(-K // splits)
    width = layout.width if layout.width > 0 else min(-layout.width, -(-share // layout.lanes))
    partials = []
    for first in range(0, splits * share, share):
        x, y = a[first : first + share], b[first : first + share]
        lanes = [_lane(x, y, lane, layout, width) for lane in range(layout.lanes)]
        if layout.halves:
            partials.append(halves(lanes))
        else:
            total = lanes[0]
            for lane in lanes[1:]:
                total = fp32(total + lane)
            partials.append(total)
    total = partials[0]
    for partial in partials[1:]:
        total = fp32(total + partial)
    return total


def option_5(a: Sequence[np.float32], b: Sequence[np.float32]) -> np.float32:
    """32 lanes of contiguous terms, each in chunks of 16; lanes meet from left to right."""
    K = len(a)
    share = -(-K // 32)
    total = fp32(0)
    for lane in range(32):
        first, end = lane * share, min((lane + 1) * share, K)
        own = fp32(0)
        for begin in range(first, end, 16):
            inner = fp32(0)
            for k in range(begin, min(begin + 16, end)):
                inner = fp32(inner + a[k] * b[k])
            own = fp32(own + inner)
        total = fp32(total + own)
    return total
