"""Many questions in one call: each is a row (or a column, or both) at a position of one class of outputs."""

from __future__ import annotations

import numpy as np

from .black_box import BlackBox

__all__ = ["Places", "Questions"]


class Places:
    """Positions (m, n) of outputs that are computed alike: rows of one column, columns of one row, and pairs (m, n) of
    which no two share a row or a column."""

    def __init__(self, alike: np.ndarray) -> None:
        by_column, by_row = alike.sum(axis=0), alike.sum(axis=1)
        self.column, self.row = int(by_column.argmax()), int(by_row.argmax())
        self.rows = np.flatnonzero(alike[:, self.column])
        self.columns = np.flatnonzero(alike[self.row])
        pairs, used = [], np.zeros(alike.shape[1], bool)
        for m in range(alike.shape[0]):
            free = np.flatnonzero(alike[m] & ~used)
            if len(free):
                pairs.append((m, int(free[0])))
                used[free[0]] = True
        self.pairs = np.array(pairs)


class Questions:
    """Dot products of one's own numbers, computed by a function at positions of one class."""

    def __init__(self, box: BlackBox, places: Places) -> None:
        self.box, self.places = box, places
        self.asked = 0

    def ask(self, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        """The results of the dot products of rows of ``a`` (Q, K) with rows of ``b``; without ``b`` with ones.

        Raises:
            ProbeError: as ``BlackBox``.
        """
        self.asked += len(a)
        if b is not None:
            return self._along(a, b, self.places.pairs)
        M, N, K = self.box.shape
        places = self.places
        by_rows = len(places.rows) >= len(places.columns)
        slots = places.rows if by_rows else places.columns
        found = np.empty(len(a))
        for start in range(0, len(a), len(slots)):
            part = a[start : start + len(slots)]
            used = slots[: len(part)]
            if by_rows:
                left = np.zeros((M, K))
                left[used] = part
                result = self.box(left, np.ones((K, N)))[used, places.column]
            else:
                right = np.zeros((K, N))
                right[:, used] = part.T
                result = self.box(np.ones((M, K)), right)[places.row, used]
            found[start : start + len(part)] = result
        return found

    def _along(self, a: np.ndarray, b: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        M, N, K = self.box.shape
        found = np.empty(len(a))
        for start in range(0, len(a), len(pairs)):
            part = slice(start, start + len(pairs))
            rows, columns = pairs[: len(a[part])].T
            left, right = np.zeros((M, K)), np.zeros((K, N))
            left[rows], right[:, columns] = a[part], b[part].T
            found[part] = self.box(left, right)[rows, columns]
        return found
