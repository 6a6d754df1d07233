"""What a reproduction is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..checks import Expectation

__all__ = ["Reproduction", "within"]


@dataclass(frozen=True)
class Reproduction:
    """A named study without code of its own.

    Args:
        title: one line.
        kind: name of its kind.
        parts: for each set of parameters, names and values as the command line takes them.
        expectations: what the rows must show.
    """

    title: str
    kind: str
    parts: tuple[dict[str, Any], ...]
    expectations: tuple[Expectation, ...]


def within(value: float, share: float) -> tuple[float, float]:
    """The interval of ``value`` plus or minus a share of it."""
    reach = abs(value) * share
    return value - reach, value + reach
