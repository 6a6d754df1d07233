"""Progress: a bar with the time left on a terminal, plain lines every ten seconds elsewhere, nothing where nobody looks."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gemmsim.study import progress as module
from gemmsim.study.cells import Cell
from gemmsim.study.progress import progress

CELLS = [Cell("s", "set", f":e5m{t}", 0, label=f"[bold]curve{t}") for t in range(1, 5)]
#: The last cell is as dear as twice the others together.
COSTS = {cell.key: cost for cell, cost in zip(CELLS, (1.0, 1.0, 1.0, 6.0), strict=True)}


@pytest.fixture
def clock(monkeypatch):
    """Seconds as the test sets them."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_off_a_terminal_lines_come_every_ten_seconds_and_judge_by_cost(clock):
    out = io.StringIO()
    with progress(Console(file=out, width=30), "study", COSTS) as shown:
        for cell in CELLS:
            clock[0] += 6.0
            shown.finished(cell)
    assert out.getvalue().splitlines() == [
        "study: 2 of 4 cells, 12 s, about 42 s left",
        "study: 4 of 4 cells, 24 s",
    ]
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()


def test_a_short_run_off_a_terminal_says_nothing(clock):
    out = io.StringIO()
    with progress(Console(file=out), "study", COSTS) as shown:
        for cell in CELLS:
            shown.finished(cell)
    assert out.getvalue() == ""


@pytest.mark.parametrize("costs", [COSTS, dict.fromkeys(COSTS, 0.0)], ids=["by cost", "all free"])
def test_on_a_terminal_a_bar_counts_and_shows_labels_as_they_are(costs):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None, legacy_windows=False)
    with progress(console, "study", costs) as shown:
        for cell in CELLS:
            shown.finished(cell)
    last = re.split(r"[\r\n]", out.getvalue().rstrip())
    text = next(line for line in reversed(last) if "study" in line)
    assert "4/4" in text and "[bold]curve4" in text and text.count("0:00:00") == 2


def test_nothing_is_shown_without_a_console_or_cells():
    out = io.StringIO()
    for console, costs in ((None, COSTS), (Console(file=out, force_terminal=True), {})):
        with progress(console, "study", costs) as shown:
            shown.finished(CELLS[0])
    assert out.getvalue() == ""
