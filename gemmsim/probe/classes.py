"""Which outputs a function computes alike: equal rows and equal columns give the same bits there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .black_box import BlackBox
from .errors import ProbeError

__all__ = ["PositionClass", "position_classes"]

#: Pairs of a row and a column that are tried: normal numbers and such with a wide range of exponents in turn.
_PAIRS = 6


@dataclass(frozen=True, eq=False)
class PositionClass:
    """Outputs that agreed for every row and column tried.

    Attributes:
        alike: (M, N), where they are.
        at: the first of them.
    """

    alike: np.ndarray
    at: tuple[int, int]

    @property
    def count(self) -> int:
        """How many outputs there are."""
        return int(self.alike.sum())

    def __str__(self) -> str:
        rows, columns = np.flatnonzero(self.alike.any(axis=1)), np.flatnonzero(self.alike.any(axis=0))
        whole = len(rows) * len(columns) == self.count
        within = "" if whole else f"{self.count} outputs within "
        return f"{within}rows {_ranges(rows)} and columns {_ranges(columns)}"


def _ranges(numbers: np.ndarray) -> str:
    """ "0:8, 12" for 0 to 7 and 12."""
    found, start = [], 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            first, last = int(numbers[start]), int(numbers[i - 1])
            found.append(f"{first}" if first == last else f"{first}:{last + 1}")
            start = i
    return ", ".join(found[:6]) + (", ..." if len(found) > 6 else "")


def position_classes(box: BlackBox, seed: int) -> list[PositionClass]:
    """The classes, that of the output (0, 0) first.

    Raises:
        ProbeError: as ``BlackBox``, for normal numbers and for small integers.
    """
    M, N, _ = box.shape
    if M * N == 1:
        return [PositionClass(np.ones((1, 1), bool), (0, 0))]
    try:
        found = _tiled(box, seed, box.integers)
    except ProbeError:
        if box.integers:
            raise
        try:
            found = _tiled(box, seed, True)  # it may take integers alone
        except ProbeError:
            found = []
        if not found:
            raise
    bits = np.stack(found).view(np.int64).reshape(_PAIRS, M * N).T
    _, first, number = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    number = number.reshape(M, N)
    order = np.argsort(first)
    return [PositionClass(number == one, divmod(int(first[one]), N)) for one in order]


def _tiled(box: BlackBox, seed: int, integers: bool) -> list[np.ndarray]:
    """Results for one row and one column everywhere."""
    M, N, K = box.shape
    g = np.random.default_rng(seed)
    found = []
    for i in range(_PAIRS):
        row, column = g.standard_normal(K), g.standard_normal(K)
        if i % 2 and not integers:
            row, column = row * np.exp2(g.uniform(-6, 6, K)), column * np.exp2(g.uniform(-6, 6, K))
        if integers:
            row, column = np.rint(np.abs(row) * 4), np.rint(np.abs(column) * 4)
        found.append(box(np.tile(row, (M, 1)), np.tile(column[:, None], (1, N))))
    return found
