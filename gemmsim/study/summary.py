"""Rows of an accumulator study grouped by format and rounding, seeds averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One accumulator: means over its seeds, and the lowest and highest accuracy among them."""

    format: str
    rounding: str
    significand_bits: int
    accuracy: float
    lowest: float
    highest: float
    logit_error: float
    seeds: int


def truth_row(rows: Sequence[Row]) -> Row | None:
    """The row of the exact pass, if it is finished."""
    return next((row for row in rows if row["what"] == "truth"), None)


def points(rows: Sequence[Row]) -> list[Point]:
    """One Point per (format, rounding) in ``rows``, in order of first appearance."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["what"] == "accumulator":
            groups.setdefault((row["format"], row["rounding"]), []).append(row)
    return [_point(group) for group in groups.values()]


def _point(group: list[Row]) -> Point:
    accuracies = [row["accuracy"] for row in group]
    return Point(
        format=group[0]["format"],
        rounding=group[0]["rounding"],
        significand_bits=group[0]["significand_bits"],
        accuracy=sum(accuracies) / len(group),
        lowest=min(accuracies),
        highest=max(accuracies),
        logit_error=sum(row["logit_error_mean"] for row in group) / len(group),
        seeds=len(group),
    )


def bits_needed(series: Sequence[Point], truth: float, tolerance: float) -> int | None:
    """Fewest significand bits from which every wider accumulator of ``series`` is within ``tolerance`` of ``truth``."""
    needed = None
    for point in sorted(series, key=lambda point: -point.significand_bits):
        if point.accuracy < truth - tolerance:
            break
        needed = point.significand_bits
    return needed


def rounding_label(rounding: str) -> str:
    """``rounding`` in words for people: 'to nearest even', 'toward zero', 'stochastic'."""
    words = {"rne": "to nearest even", "rna": "to nearest, ties away", "rtz": "toward zero", "ru": "up", "rd": "down"}
    return "stochastic" if rounding.startswith("sr") else words.get(rounding, rounding)
