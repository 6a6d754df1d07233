"""Rows of a recorded table of configurations, and which of them are of one kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Row", "kinds", "read_rows"]


class Row(NamedTuple):
    """One query of the heuristic and the nine fields of its answer."""

    M: int
    N: int
    K: int
    a: str
    b: str
    out: str
    fast: bool
    config: tuple[int, ...]

    @property
    def splits(self) -> int:
        return max(1, self.config[2])

    @property
    def kind(self) -> str:
        """What decides the bits, but for the number of slices, and the formats."""
        algo, _, _, scheme, _, option, stages, *_ = self.config
        fast = ", fast" if self.fast else ""
        words = f"ALGO_ID {algo}, STAGES_ID {stages}, REDUCTION_SCHEME {scheme}, CUSTOM_OPTION {option}"
        return f"{words}, {'split' if self.splits > 1 else 'one slice'}, {self.a}{fast}"

    @property
    def size(self) -> int:
        """Elements of operands and output."""
        return self.M * self.K + self.K * self.N + self.M * self.N


def read_rows(path: Path) -> list[Row]:
    """The rows of a table that ``record`` wrote; a last line that is cut short is left out."""
    found = []
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        try:
            lines = file.read().splitlines()
        except EOFError:  # cut short
            return []
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if "config" in one:
            fields = (one[name] for name in ("M", "N", "K", "a", "b", "out", "fast"))
            found.append(Row(*fields, tuple(one["config"])))
    return found


def kinds(rows: Iterable[Row], most: int, largest: int) -> dict[str, list[Row]]:
    """By kind up to ``most`` of its smallest rows of at most ``largest`` elements, other numbers of slices first.

    Kinds with few rows come first: they are what is known least.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.size <= largest:
            found.setdefault(row.kind, []).append(row)
    chosen = {}
    for kind, some in sorted(found.items(), key=lambda item: len(item[1])):
        some.sort(key=lambda row: row.size)
        first: dict[int, Row] = {}
        for row in some:
            first.setdefault(row.splits, row)
        ordered = [*first.values(), *(row for row in some if row not in first.values())]
        chosen[kind] = ordered[:most]
    return chosen
