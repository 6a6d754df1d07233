"""A study of six cells that counts how often each is computed. Registered as a user would register one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from gemmsim.study import Cell, Study


@dataclass(frozen=True)
class Context:
    fingerprint: str


class CountingStudy(Study):
    name = "counting"
    title = "six cells that count"

    def __init__(self, fingerprint: str = "inputs-1", fail_at: str | None = None) -> None:
        self.computed: Counter[str] = Counter()
        self.prepared = 0
        self.plotted = 0
        self.fingerprint = fingerprint
        self.fail_at = fail_at

    def cells(self) -> list[Cell]:
        return [
            Cell(self.name, "setting", f":e5m{t}", 0, (("trailing", t),), stochastic=t % 2 == 1, macs=1000)
            for t in range(1, 7)
        ]

    def prepare(self, folder: Path) -> Context:
        self.prepared += 1
        return Context(self.fingerprint)

    def evaluate(self, cell: Cell, context: Context) -> dict:
        if cell.spec == self.fail_at:
            raise KeyboardInterrupt
        self.computed[cell.spec] += 1
        return {"score": dict(cell.columns)["trailing"] / 10}

    def table(self, rows: list[dict]) -> Table:
        table = Table("spec", "score")
        for row in rows:
            table.add_row(row["spec"], str(row["score"]))
        return table

    def plot(self, rows: list[dict], path: Path) -> None:
        self.plotted += 1
        path.write_bytes(b"\x89PNG")
