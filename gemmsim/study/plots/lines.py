"""One quantity against another, a line for each curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import style

__all__ = ["Line", "Picture", "draw_lines"]


@dataclass(frozen=True)
class Line:
    """A curve: ``points`` (x, y), and where they were measured repeatedly the lowest and highest y of each x."""

    label: str
    points: Sequence[tuple[float, float]]
    spread: Sequence[tuple[float, float]] = ()
    #: A line of comparison (a bound, a theory) instead of measurements: thin, grey, without markers.
    guide: bool = False
    #: A point of it that is ringed, and the words there.
    mark: tuple[float, float, str] | None = None


@dataclass(frozen=True)
class Picture:
    """Words and scales of a picture."""

    finding: str
    subject: str
    x: str
    y: str
    log_x: bool = True
    log_y: bool = True
    #: Values of x that get a tick of their own; empty: as usual.
    ticks: Sequence[float] = field(default=())
    tick_labels: Sequence[str] = field(default=())
    #: Range of y that is always shown.
    y_range: tuple[float, float] | None = None


def draw_lines(lines: Sequence[Line], picture: Picture, path: Path) -> None:
    """Writes the picture to ``path`` (.png or .svg). Points that a logarithmic scale cannot show are left out."""
    drawn = style.figure()
    axes = drawn.add_subplot()
    ends = []
    measured = 0
    for line in lines:
        points = [(x, y) for x, y in line.points if _shown(x, picture.log_x) and _shown(y, picture.log_y)]
        colour = style.GREY if line.guide else style.COLOURS[measured % len(style.COLOURS)]
        if not points:
            measured += not line.guide
            continue
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if line.guide:
            axes.plot(xs, ys, color=colour, linewidth=1.1, linestyle=(0, (3, 2)), zorder=1)
        else:
            marker, dash = style.MARKERS[measured % len(style.MARKERS)], style.DASHES[measured // 7 % 4]
            axes.plot(xs, ys, color=colour, marker=marker, markersize=5, linewidth=2, linestyle=dash, zorder=3)
            _band(axes, line, xs, colour)
            _ring(axes, line, colour)
            measured += 1
        ends.append((xs[-1], ys[-1], line.label, colour))
    _scales(axes, picture)
    style.bare(axes)
    style.titled(drawn, axes, picture.finding, picture.subject)
    drawn.draw_without_rendering()
    style.label_ends(axes, ends)
    style.save(drawn, path)


def _band(axes: Any, line: Line, xs: Sequence[float], colour: str) -> None:
    if len(line.spread) == len(line.points) == len(xs):
        low, high = [pair[0] for pair in line.spread], [pair[1] for pair in line.spread]
        axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def _ring(axes: Any, line: Line, colour: str) -> None:
    if line.mark is None:
        return
    x, y, words = line.mark
    axes.plot([x], [y], marker="o", markersize=14, markerfacecolor="none", color=colour, markeredgewidth=1.8, zorder=4)
    axes.annotate(
        words, (x, y), xytext=(0, -13), textcoords="offset points", color=colour, fontsize=9, va="top", ha="center"
    )


def _scales(axes: Any, picture: Picture) -> None:
    if picture.log_x:
        axes.set_xscale("log", base=2)
    if picture.log_y:
        axes.set_yscale("log")
    if picture.ticks:
        axes.set_xticks(list(picture.ticks), list(picture.tick_labels) or [f"{tick:g}" for tick in picture.ticks])
        axes.minorticks_off()
    if picture.y_range is not None:
        axes.set_ylim(*picture.y_range)
    axes.set_xlabel(picture.x)
    axes.set_ylabel(picture.y)


def _shown(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)
