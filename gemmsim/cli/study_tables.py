"""Tables of studies, as wide as the terminal or as COLUMNS says and no wider, with nothing cut off."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmsim import study

from .console import console, say

__all__ = ["expectation_facts", "plan_facts", "show_checks", "show_study_table", "show_verdicts", "summary_facts"]

_NAMES = 0.5  # of the width, for columns that say what a row is


def show_study_table(table: Any) -> None:
    """A table; one that is too wide as several with the same rows and the same first columns, words folded."""
    out = console()
    if not isinstance(table, Table):
        out.print(table)
        return
    if _width(out, table) <= out.width:
        out.print(table)
        return
    names = [at for at, column in enumerate(table.columns) if column.justify == "left"]
    values = [at for at in range(len(table.columns)) if at not in names]
    parts = list(_parts(out, table, names, values)) if names and values else [names or values]
    for number, chosen in enumerate(parts):
        title = None if number else table.title
        caption = table.caption if number == len(parts) - 1 else None
        out.print(_part(out, table, chosen, names if values else [], title, caption))


def _width(out: Console, table: Table) -> int:
    """What the table takes to have each cell on one line; title and caption fold by themselves."""
    bare = _columns(table, range(len(table.columns)))
    return out.measure(bare, options=out.options.update(max_width=10_000)).maximum


def _columns(table: Table, chosen: Sequence[int]) -> Table:
    part = Table(title_justify="left", caption_justify="left", box=table.box, show_header=table.show_header)
    for at in chosen:
        column = table.columns[at]
        part.add_column(column.header, justify=column.justify, overflow="fold")
    for cells in zip(*(table.columns[at].cells for at in chosen), strict=True):
        part.add_row(*cells)
    return part


def _part(out: Console, table: Table, chosen: Sequence[int], names: Sequence[int], title: Any, caption: Any) -> Table:
    part = _columns(table, chosen)
    part.title, part.caption = title, caption
    for at, column in zip(chosen, part.columns, strict=True):
        if at in names:
            column.max_width = max(8, int(out.width * _NAMES) // len(names))
    return part


def _parts(out: Console, table: Table, names: Sequence[int], values: Sequence[int]) -> Iterator[list[int]]:
    """``values`` in groups that fit beside ``names``, at least one each."""
    group: list[int] = []
    for at in values:
        wider = _part(out, table, [*names, *group, at], names, None, None)
        if group and out.measure(wider, options=out.options.update(max_width=10_000)).maximum > out.width:
            yield [*names, *group]
            group = []
        group.append(at)
    yield [*names, *group]


def show_verdicts(verdicts: Sequence[study.Verdict]) -> None:
    """What became of each check, and below where the expected numbers come from, each place once."""
    if not verdicts:
        return
    places = _Places()
    table = Table(title="checks", title_justify="left")
    for heading in ("verdict", "rows and value", "found", "published", "source"):
        table.add_column(heading, overflow="fold")
    for verdict in verdicts:
        wanted = verdict.expectation
        table.add_row(
            verdict.word,
            wanted.words(),
            verdict.found(),
            wanted.published,
            places.source(wanted.source_words(), wanted.place),
        )
    console().print(table)
    places.show()
    count = sum(verdict.ok is True for verdict in verdicts)
    say(f"{count} of {len(verdicts)} checks pass.")
    say(f"{study.counted_sources(verdict.expectation.source for verdict in verdicts)}.")


def show_checks(expected: Sequence[study.Expectation]) -> None:
    """What a study's rows are expected to show, and below where that comes from, each place once."""
    if not expected:
        return
    places = _Places()
    table = Table(title="checks", title_justify="left")
    for heading in ("rows and value", "published", "source"):
        table.add_column(heading, overflow="fold")
    for entry in expected:
        table.add_row(entry.words(), entry.published, places.source(entry.source_words(), entry.place))
    console().print(table)
    places.show()
    say(f"{study.counted_sources(entry.source for entry in expected)}.")


class _Places:
    """Citations and remarks, which are the parts of a place, by number in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def source(self, source: str, place: str) -> Any:
        """``source`` with the numbers of ``place``."""
        if not place:
            return source
        numbers = [self.numbers.setdefault(part, len(self.numbers) + 1) for part in place.split("; ")]
        return Text(f"{source} [{', '.join(map(str, numbers))}]")

    def show(self) -> None:
        """One paragraph each."""
        for place, number in self.numbers.items():
            mark = f"[{number}] "
            say(textwrap.fill(place, max(20, console().width), initial_indent=mark, subsequent_indent=" " * len(mark)))


def expectation_facts(entry: study.Expectation) -> dict[str, Any]:
    """A check: its words, its interval, and where the expected number comes from."""
    found = {"check": entry.words(), "metric": entry.metric, "low": entry.low, "high": entry.high}
    origin = {"published": entry.published or None, "source": entry.source, "derived": entry.derived}
    return found | origin | {"place": entry.place}


def summary_facts(chosen: study.Study, summary: study.RunSummary) -> dict[str, Any]:
    """What a run did and found: its rows as results.jsonl has them."""
    verdicts = [
        expectation_facts(verdict.expectation) | {"verdict": verdict.word, "values": list(verdict.values)}
        for verdict in summary.verdicts
    ]
    failures = [{**failure.cell.row(), "error": failure.error} for failure in summary.failures]
    return {
        "study": chosen.name,
        "kind": chosen.kind,
        "title": chosen.title,
        "folder": str(summary.folder),
        "ok": summary.ok,
        "computed": summary.computed,
        "reused": summary.reused,
        "left": summary.left,
        "finding": chosen.finding(summary.rows) if summary.rows else "",
        "verdicts": verdicts,
        "failures": failures,
        "problems": list(summary.problems),
        "rows": list(summary.rows),
    }


def plan_facts(plan: study.Plan, todo: Sequence[Any]) -> dict[str, Any]:
    """What a run would do: every cell and its state, and what the cells ``todo`` cost."""
    ahead = {cell.key for cell in todo}

    def state(key: str) -> str:
        return "finished" if key in plan.finished else "to do" if key in ahead else "later"

    return {
        "study": plan.study.name,
        "cells": [{**cell.row(), "state": state(cell.key)} for cell in plan.cells],
        "macs": sum(cell.macs for cell in todo),
        "seconds": plan.seconds(todo),
        "rates": "measured" if plan.rate_is_measured else "assumed",
    }
