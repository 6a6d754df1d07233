"""What a study's rows should show, and whether they do: the pass and fail of a reproduction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .cells import Row, Scalar
from .errors import StudyError

__all__ = [
    "SOURCES",
    "Expectation",
    "Selection",
    "Verdict",
    "counted_sources",
    "judge",
    "passed",
    "source_words",
    "strongest_source",
    "today_source",
]

#: Columns and the values they must have: (("label", "chunk64"), ("K", 8192)).
Selection = tuple[tuple[str, Scalar], ...]
#: What stands behind the interval of a check, strongest first.
Source = Literal["paper", "known effect", "computed here"]
SOURCES: tuple[Source, ...] = ("paper", "known effect", "computed here")
#: Earlier words for numbers of this project's own, and whether they follow from arithmetic.
_EARLIER = {"derived": True, "measured here first": False}


@dataclass(frozen=True)
class Expectation:
    """``low <= metric <= high`` in every row of a selection.

    With ``against`` the value is a ratio: ``metric`` of a row divided by ``metric`` of the row of ``against`` that
    equals it in every column of ``match``. With ``difference`` it is the difference of the two.

    Args:
        of: which rows; each of them is judged by itself.
        metric: column of the value.
        low: least value allowed; -inf for none.
        high: greatest value allowed; inf for none.
        source: "paper": the interval is, or contains, a number or bound that the publication prints. "known effect":
            publications describe what the check shows, and the interval is this project's. "computed here": neither.
            "derived" and "measured here first" are read as "computed here", with and without ``derived``.
        place: publication, section, theorem, or how it was measured.
        published: the publication's own number, or in short what it states; "" if it says nothing about this row.
        against: rows to compare with.
        match: columns in which a row and the one that it is compared with agree.
        difference: compare by difference instead of ratio.
        derived: for this project's own intervals, whether it follows from arithmetic; otherwise it was measured.

    Raises:
        StudyError: for another source; for a paper without ``place`` and ``published``, a known effect without
            ``place``.

    Example:
        >>> check = gs.study.Expectation((("label", "fp16"),), "error", 0.0, 0.01, "computed here")
        >>> gs.study.judge([check], [{"label": "fp16", "error": 0.002}, {"label": "e4m3", "error": 0.2}])[0].word
        'pass'
    """

    of: Selection
    metric: str
    low: float
    high: float
    source: Source | Literal["derived", "measured here first"]
    place: str = ""
    published: str = ""
    against: Selection = ()
    match: tuple[str, ...] = ()
    difference: bool = False
    derived: bool = False

    def __post_init__(self) -> None:
        source, derived = today_source(self.source, self.derived)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "derived", derived)
        if self.source not in SOURCES:
            raise StudyError(f"source = {self.source!r}; allowed: {', '.join(SOURCES)}.")
        needed = {"paper": ("place", "published"), "known effect": ("place",)}.get(self.source, ())
        for name in needed:
            if not getattr(self, name):
                raise StudyError(f"a check of source {self.source!r} has no {name}. Say what is published, and where.")

    def source_words(self) -> str:
        """The source; for an interval of this project's own also whether it was derived or measured.

        Example:
            >>> gs.study.Expectation((), "error", 0.0, 0.01, "computed here", derived=True).source_words()
            'computed here, derived'
        """
        return source_words(self.source, self.derived)

    def words(self) -> str:
        """Return the check in words: 'label=chunk64, K=8192: ratio in [0.995, 1.005]'.

        Example:
            >>> rows = ("label", "chunk64"), ("K", 8192)
            >>> gs.study.Expectation(rows, "ratio", 0.995, 1.005, "computed here").words()
            'label=chunk64, K=8192: ratio in [0.995, 1.005]'
        """
        value = self.metric
        if self.against:
            value += f" {'minus' if self.difference else 'over'} that of {_selected(self.against)}"
        return f"{_selected(self.of)}: {value} {_interval(self.low, self.high)}"


@dataclass(frozen=True)
class Verdict:
    """The result of an expectation: the ``values`` found, and ``ok``; None if its rows are not all finished.

    Example:
        >>> check = gs.study.Expectation((("label", "fp16"),), "error", 0.0, 0.01, "computed here")
        >>> gs.study.Verdict(check, (0.002,), True).word
        'pass'
    """

    expectation: Expectation
    values: tuple[float | None, ...]
    ok: bool | None

    @property
    def word(self) -> str:
        """'pass', 'fail' or 'unfinished'.

        Example:
            >>> check = gs.study.Expectation((("label", "fp16"),), "error", 0.0, 0.01, "computed here")
            >>> [gs.study.Verdict(check, (0.02,), ok).word for ok in (True, False, None)]
            ['pass', 'fail', 'unfinished']
        """
        return "unfinished" if self.ok is None else "pass" if self.ok else "fail"

    def found(self) -> str:
        """Return the values as text: one number, or lowest and highest.

        Example:
            >>> check = gs.study.Expectation((("label", "fp16"),), "error", 0.0, 0.01, "computed here")
            >>> gs.study.Verdict(check, (0.002,), True).found(), gs.study.Verdict(check, (0.002, 0.02), False).found()
            ('0.002', '0.002 to 0.02')
        """
        numbers = [value for value in self.values if value is not None]
        if len(numbers) < len(self.values) or not numbers:
            return "no number" if self.values else ""
        low, high = min(numbers), max(numbers)
        return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def judge(expectations: Sequence[Expectation], rows: Sequence[Row], *, complete: bool = True) -> list[Verdict]:
    """Return a verdict for each expectation. If not ``complete``, rows may be missing, and only a failure is final.

    Example:
        >>> check = gs.study.Expectation((("label", "fp16"),), "error", 0.0, 0.01, "computed here")
        >>> rows = [{"label": "fp16", "error": 0.002}]
        >>> gs.study.judge([check], rows)[0].word, gs.study.judge([check], rows, complete=False)[0].word
        ('pass', 'unfinished')
    """
    return [_judge(expectation, rows, complete) for expectation in expectations]


def passed(verdicts: Sequence[Verdict]) -> bool:
    """Whether none failed. Unfinished ones have not failed yet."""
    return all(verdict.ok is not False for verdict in verdicts)


def today_source(source: str, derived: bool) -> tuple[str, bool]:
    """``source`` and whether its interval was derived, in today's words: earlier ones are "computed here"."""
    return ("computed here", _EARLIER[source]) if source in _EARLIER else (source, derived)


def source_words(source: str, derived: bool) -> str:
    """``source``; of an interval of this project's own also whether it was derived or measured."""
    return source if source == "paper" else f"{source}, {'derived' if derived else 'measured'}"


def strongest_source(expectations: Iterable[Expectation]) -> str:
    """Return the strongest source among the checks of a study, as ``SOURCES`` orders them; "" for none.

    Example:
        >>> gs.study.strongest_source(gs.study.get("wang2018_fig3").expectations())
        'known effect'
    """
    found = {one.source for one in expectations}
    return next((source for source in SOURCES if source in found), "")


def counted_sources(sources: Iterable[str]) -> str:
    """Return how many checks have which source: "9 checks: 1 paper, 3 known effect, 5 computed here"; "" for none.

    Example:
        >>> gs.study.counted_sources(["paper", "computed here", "computed here"])
        '3 checks: 1 paper, 2 computed here'
    """
    counts = Counter(sources)
    told = [f"{counts[source]} {source}" for source in SOURCES if counts[source]]
    total = sum(counts[source] for source in SOURCES)
    return f"{total} {'check' if total == 1 else 'checks'}: {', '.join(told)}" if total else ""


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
