"""What a study's rows should show, and whether they do: the pass and fail of a reproduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .cells import Row, Scalar

__all__ = ["Expectation", "Selection", "Verdict", "judge", "passed"]

#: Columns and the values they must have: (("label", "chunk64"), ("K", 8192)).
Selection = tuple[tuple[str, Scalar], ...]
#: Where an expected number comes from: printed in a publication, following from arithmetic, or seen here first.
Source = Literal["paper", "derived", "measured here first"]


@dataclass(frozen=True)
class Expectation:
    """``low <= metric <= high`` in every row of a selection.

    With ``against`` the value is a ratio, ``metric`` of a row over ``metric`` of the row of ``against`` that equals it
    in every column of ``match``; with ``difference`` it is the difference of the two.

    Args:
        of: which rows; all of them are judged, each by itself.
        metric: column of the value.
        low: least value allowed; -inf for none.
        high: greatest value allowed; inf for none.
        source: where the number comes from.
        place: publication, section, theorem, or how it was measured.
        published: the publication's own number, or in short what it states; "" where it says nothing of this row.
        against: rows to compare with.
        match: columns in which a row and the one it is compared with agree.
        difference: compare by difference instead of ratio.
    """

    of: Selection
    metric: str
    low: float
    high: float
    source: Source
    place: str = ""
    published: str = ""
    against: Selection = ()
    match: tuple[str, ...] = ()
    difference: bool = False

    def words(self) -> str:
        """The check in words: 'label=chunk64, K=8192: ratio in [0.995, 1.005]'."""
        value = self.metric
        if self.against:
            value += f" {'minus' if self.difference else 'over'} that of {_selected(self.against)}"
        return f"{_selected(self.of)}: {value} {_interval(self.low, self.high)}"


@dataclass(frozen=True)
class Verdict:
    """What became of an expectation: ``values`` found, and ``ok``; None where its rows are not all finished."""

    expectation: Expectation
    values: tuple[float | None, ...]
    ok: bool | None

    @property
    def word(self) -> str:
        """'pass', 'fail' or 'unfinished'."""
        return "unfinished" if self.ok is None else "pass" if self.ok else "fail"

    def found(self) -> str:
        """The values as text: one number, or lowest and highest."""
        numbers = [value for value in self.values if value is not None]
        if len(numbers) < len(self.values) or not numbers:
            return "no number" if self.values else ""
        low, high = min(numbers), max(numbers)
        return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def judge(expectations: Sequence[Expectation], rows: Sequence[Row], *, complete: bool = True) -> list[Verdict]:
    """A verdict for each expectation. Not ``complete``: rows may be missing, so only a failure is final."""
    return [_judge(expectation, rows, complete) for expectation in expectations]


def passed(verdicts: Sequence[Verdict]) -> bool:
    """Whether none failed. Unfinished ones have not failed yet."""
    return all(verdict.ok is not False for verdict in verdicts)


def _judge(expectation: Expectation, rows: Sequence[Row], complete: bool) -> Verdict:
    chosen = _select(expectation.of, rows)
    others = _select(expectation.against, rows) if expectation.against else []
    values: list[float | None] = []
    for row in chosen:
        if not expectation.against:
            values.append(_number(row.get(expectation.metric)))
            continue
        partner = next((o for o in others if all(o.get(c) == row.get(c) for c in expectation.match)), None)
        if partner is None:
            return Verdict(expectation, (), False if complete else None)
        values.append(_compare(expectation, row, partner))
    if not values:
        return Verdict(expectation, (), False if complete else None)
    inside = all(value is not None and expectation.low <= value <= expectation.high for value in values)
    return Verdict(expectation, tuple(values), False if not inside else True if complete else None)


def _compare(expectation: Expectation, row: Row, partner: Row) -> float | None:
    mine, other = _number(row.get(expectation.metric)), _number(partner.get(expectation.metric))
    if mine is None or other is None:
        return None
    if expectation.difference:
        return mine - other
    return None if other == 0 else mine / other


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _select(selection: Selection, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if all(row.get(column) == value for column, value in selection)]


def _selected(selection: Selection) -> str:
    return ", ".join(f"{column}={value}" for column, value in selection) or "every row"


def _interval(low: float, high: float) -> str:
    if low == high:
        return f"= {low:.6g}"
    if math.isinf(low):
        return f"<= {high:.4g}"
    if math.isinf(high):
        return f">= {low:.4g}"
    return f"in [{low:.4g}, {high:.4g}]"
