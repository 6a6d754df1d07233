"""How many small units survive a pair of large numbers that cancel: the one question that shows an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .errors import ContradictoryAnswers
from .widths import Terms, Widths

__all__ = ["Asked", "Survivors"]

#: Numbers of a batch of masks, to bound memory.
_BATCH = 1 << 23


class Asked(NamedTuple):
    """A pivot and other terms of it, each with it a pair; ``units``, where small units stand beside them."""

    pivot: int
    others: np.ndarray
    units: np.ndarray


class Survivors:
    """Counts the units that are lost before the large numbers of a pair meet: +B at one term, -B at the other.

    Next to B a register holds multiples of B * 2^-(most + 1) alone. Units are smaller than that by enough that all of
    them together are, so that what a rounding away from zero makes of one is told from the units that survive. Where
    there is no room for that, or the register cannot count so far, the units are asked in smaller groups.
    """

    def __init__(self, terms: Terms, widths: Widths) -> None:
        self.terms = terms
        most = widths.reach if widths.most is None else widths.most
        low, high = terms.window(most + 24)
        room = high - low - most - 3
        if room < 0:
            raise ContradictoryAnswers(
                f"operands and results cover a range of 2^{high - low}; an accumulator that keeps "
                f"{most} bits needs 2^{most + 3}"
            )
        self.window = max(1, min(2 ** (widths.least + 1) - 1, 2**room - 1, terms.K, 1 << 20))
        span = most + 3 + int(self.window).bit_length()
        low, high = terms.window(span)
        self.unit, self.large = 2.0**low, 2.0**high
        self.quantum = 2.0 ** (high - most - 1 - low)
        self.countable = 2.0 ** (widths.least + 1)
        self.sign = 1.0
        self.unclear = self.total = 0

    def lost(self, asked: Sequence[Asked]) -> list[np.ndarray]:
        """For each, how many of the units (pivot and other left out) are lost, for each of ``others``."""
        pairs: list[tuple[int, int, np.ndarray]] = []
        for one in asked:
            windows = self._windows(one)
            pairs += [(one.pivot, int(j), window) for j in one.others for window in windows]
        survived = self._survived(pairs)
        found, at = [], 0
        for one in asked:
            count = len(self._windows(one))
            mine = survived[at : at + count * len(one.others)].reshape(len(one.others), count).sum(axis=1)
            at += count * len(one.others)
            inside = np.isin(one.others, one.units).astype(int) + int(np.isin(one.pivot, one.units))
            found.append(len(one.units) - inside - mine)
        return found

    def _windows(self, one: Asked) -> list[np.ndarray]:
        return [one.units[i : i + self.window] for i in range(0, len(one.units), self.window)]

    def _survived(self, pairs: Sequence[tuple[int, int, np.ndarray]]) -> np.ndarray:
        found = np.zeros(len(pairs), dtype=np.int64)
        step = max(1, _BATCH // self.terms.K)
        for start in range(0, len(pairs), step):
            part = pairs[start : start + step]
            answers, clear = self._ask(part)
            found[start : start + len(part)] = answers
            self.total += len(part)
            for index in np.flatnonzero(~clear):
                self.unclear += 1
                found[start + index] = self._by_halves(*part[int(index)])
            if self.sign > 0 and self.total >= 16 and self.unclear * 4 > self.total:
                self.sign, self.unclear, self.total = -1.0, 0, 0  # a register that rounds up loses no positive unit
        return found

    def _ask(self, pairs: Sequence[tuple[int, int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Survivors of each pair, and whether the answer is clear."""
        masks = np.zeros((len(pairs), self.terms.K))
        counts = np.empty(len(pairs), dtype=np.int64)
        for row, (i, j, units) in enumerate(pairs):
            masks[row, units] = self.sign * self.unit
            masks[row, i], masks[row, j] = self.large, -self.large
            counts[row] = len(units)
        result = self.sign * self.terms.ask(masks) / self.unit
        with np.errstate(invalid="ignore"):
            survived = np.mod(result, self.quantum)
            clear = np.isfinite(result) & (survived <= counts) & (np.abs(result) < self.countable)
            single = counts == 1
        survived = np.where(single, result == 1.0, np.where(clear, survived, 0.0))
        return survived.astype(np.int64), clear | single

    def _by_halves(self, i: int, j: int, units: np.ndarray) -> int:
        units = units[(units != i) & (units != j)]
        if len(units) == 0:
            return 0
        if len(units) == 1:
            return int(self._ask([(i, j, units)])[0][0])
        half = len(units) // 2
        total = 0
        for part in (units[:half], units[half:]):
            answers, clear = self._ask([(i, j, part)])
            total += int(answers[0]) if clear[0] else self._by_halves(i, j, part)
        return total
