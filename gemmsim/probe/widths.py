"""Sums of products that are powers of two times short numbers, and how far apart two addends may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .placing import Questions
from .ranges import Ranges, powers

__all__ = ["Terms", "Widths", "measure_widths"]

#: No register of interest keeps more fraction bits.
_MOST = 60


class Terms:
    """Questions by their products: divides each product's exponent between both operands where one alone cannot have
    it."""

    def __init__(self, questions: Questions, ranges: Ranges) -> None:
        self.questions, self.ranges = questions, ranges
        self.K = questions.box.shape.K

    def window(self, span: int) -> tuple[int, int]:
        """Lowest and highest exponent of products ``span`` apart, or as far apart as there is room, about 0."""
        for low, high in (self.ranges.alone, self.ranges.product):
            if high - low >= span:
                break
        span = min(span, high - low)
        top = min(high, max(low + span, (span + 1) // 2))
        return top - span, top

    def ask(self, products: np.ndarray) -> np.ndarray:
        """The sums of rows of products (Q, K).

        Raises:
            ProbeError: as ``BlackBox``.
        """
        fraction, exponent = np.frexp(products)
        used = fraction != 0
        low, high = self.ranges.alone
        alone = ((exponent - 1 >= low) & (exponent - 1 <= high)) | ~used
        if alone.all():
            return self.questions.ask(products)
        exponent = exponent - 1
        (low_a, high_a), (low_b, high_b) = self.ranges.a, self.ranges.b
        left = np.clip(-(-exponent // 2), np.maximum(low_a, exponent - high_b), np.minimum(high_a, exponent - low_b))
        a = np.where(used, np.ldexp(2.0 * fraction, left), 0.0)
        b = np.where(used, powers(np.where(used, exponent - left, 0)), 0.0)
        # Terms of no interest have zeros of both operands, but for one side, so that no operand is a row of zeros.
        return self.questions.ask(a, b)


@dataclass(frozen=True)
class Widths:
    """Fraction bits x up to which 2^-x beside 1 survives.

    Attributes:
        least: in a sum that is read at once, result included, wherever the two stand.
        most: after 1 is taken away again, wherever the three stand; None where nothing was ever lost.
        reach: the largest x that could be asked.
    """

    least: int
    most: int | None
    reach: int


def measure_widths(terms: Terms, seed: int) -> Widths:
    """The widths, over pairs and triples of terms near and far from one another.

    Raises:
        ProbeError: as ``BlackBox``.
    """
    K = terms.K
    low, high = terms.window(_MOST)
    reach = high - low
    if K < 2 or reach < 1:
        return Widths(reach, None, reach)
    g = np.random.default_rng(seed)
    others = sorted({1, K // 2, K - 1, *(int(x) for x in g.integers(1, K, 4))} - {0})
    steps = np.arange(1, reach + 1)
    least = min(_survives(terms, (0, j), steps, high, False) for j in others)
    if K < 3:
        return Widths(least, None, reach)
    triples: set[tuple[int, ...]] = {(0, 1, 2), (0, 1, K - 1), (0, K // 2, K - 1), (K - 3, K - 2, K - 1)}
    triples |= {tuple(int(x) for x in g.choice(K, 3, replace=False)) for _ in range(18)}
    found = []
    for triple in sorted(triples):
        if len(set(triple)) == 3:
            x, y, z = triple
            found.append(min(_survives(terms, one, steps, high, True) for one in ((x, y, z), (x, z, y), (y, z, x))))
    lossy = [one for one in found if one < reach]
    return Widths(least, max(lossy) if lossy else None, reach)


def _survives(terms: Terms, places: tuple[int, ...], steps: np.ndarray, top: int, taken_away: bool) -> int:
    """The largest x with 2^(top-x) exactly there, in the sum with 2^top, which is ``taken_away`` again at a third
    term."""
    a = np.zeros((len(steps), terms.K))
    a[:, places[0]], a[:, places[1]] = 2.0**top, powers(top - steps)
    expected = powers(top - steps) + (0.0 if taken_away else 2.0**top)
    if taken_away:
        a[:, places[2]] = -(2.0**top)
    good = (terms.ask(a) == expected) & (expected != 2.0**top)  # float64 itself holds no more beside a larger number
    return len(steps) if good.all() else int(good.argmin())
