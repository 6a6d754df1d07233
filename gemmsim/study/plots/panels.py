"""Several small pictures in columns, each with lines of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import style
from .lines import Line

__all__ = ["Panel", "draw_panels"]


@dataclass(frozen=True)
class Panel:
    """A title, what is on the axis of y, and lines, named at their ends. ``zero``: a grey line at 0."""

    title: str
    y: str
    lines: Sequence[Line]
    zero: bool = False


def draw_panels(columns: Sequence[Sequence[Panel]], finding: str, subject: str, x: str, path: Path) -> None:
    """Writes the picture to ``path`` (.png or .svg): panels of a column from top to bottom, below each other."""
    rows = max((len(column) for column in columns), default=1)
    drawn = style.figure(width=6.6 * max(len(columns), 1), height=1.3 + 2.3 * rows)
    grid = drawn.subplots(rows, max(len(columns), 1), squeeze=False)
    labelled = []
    for number, column in enumerate(columns):
        for place in range(rows):
            axes = grid[place][number]
            if place >= len(column):
                axes.set_axis_off()
                continue
            labelled.append((axes, _draw(axes, column[place])))
            if place == len(column) - 1:
                axes.set_xlabel(x)
    style.titled(drawn, grid[0][0], finding, subject)
    for number, column in enumerate(columns):
        for place, panel in enumerate(column):
            above = f"{subject}\n" if (place, number) == (0, 0) else ""
            grid[place][number].set_title(above + panel.title, loc="left", fontsize=9.5, color="0.35")
    # Room at the right of each column for the names of its lines.
    drawn.get_layout_engine().set(wspace=0.25, rect=(0, 0, 1 - 0.22 / max(len(columns), 1), 1))
    drawn.get_layout_engine().execute(drawn)
    for axes, ends in labelled:
        style.label_ends(axes, ends)
    words = "; ".join(f"{panel.title}: {_in_words(panel)}" for column in columns for panel in column)
    style.save(drawn, path, description=f"{subject}. {words}.")


def _draw(axes: Any, panel: Panel) -> list[tuple[float, float, str, str]]:
    """The lines of a panel; their ends, labels and colours."""
    ends = []
    if panel.zero:
        axes.axhline(0.0, color=style.GREY, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
    for place, line in enumerate(line for line in panel.lines if line.points):
        number = place if line.colour is None else line.colour
        colour = style.COLOURS[number % len(style.COLOURS)]
        dash = style.DASHES[number // len(style.COLOURS) % len(style.DASHES)]
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        marker = style.MARKERS[number % len(style.MARKERS)]
        axes.plot(xs, ys, color=colour, linewidth=1.6, linestyle=dash, marker=marker, markersize=3, zorder=3)
        if len(line.spread) == len(xs):
            low, high = [pair[0] for pair in line.spread], [pair[1] for pair in line.spread]
            axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0, zorder=2)
        ends.append((xs[-1], ys[-1], line.label, colour))
    axes.margins(x=0.02)
    axes.set_ylabel(panel.y)
    style.bare(axes)
    return ends


def _in_words(panel: Panel) -> str:
    return ", ".join(f"{line.label} {line.points[-1][1]:.3g}" for line in panel.lines if line.points)
