"""One quantity against another, a line for each curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import style

__all__ = ["Line", "Picture", "draw_lines"]

#: Greatest over least y below which the axis of y is linear, asked or not.
LINEAR_BELOW = 4.0


@dataclass(frozen=True)
class Line:
    """A curve, named at its last point: ``points`` (x, y), and of repeated measurements the lowest and highest y.

    Without a label it is drawn without one.
    """

    label: str
    points: Sequence[tuple[float, float]]
    spread: Sequence[tuple[float, float]] = ()
    #: A line of comparison (a bound, a theory) instead of measurements: thin, grey, without markers.
    guide: bool = False
    #: A point of it that is ringed, and the words below it; of a guide only the words, above it.
    mark: tuple[float, float, str] | None = None
    #: Number of its colour and marker, and of its dash: equal for curves that belong together. None: one after another.
    colour: int | None = None
    dash: int | None = None


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
    """Writes the picture to ``path`` (.png or .svg). Points that a logarithmic scale cannot show are left out; lines
    without any other are named below the title.
    """
    drawn = style.figure(height=max(5.6, 1.6 + 0.17 * sum(1 + len(line.label) // style.LABEL_WIDTH for line in lines)))
    axes = drawn.add_subplot()
    axes.margins(x=0.02)
    ends, hidden = [], []
    measured = 0
    for line in lines:
        points = [(x, y) for x, y in line.points if _shown(x, picture.log_x) and _shown(y, picture.log_y)]
        number = measured if line.colour is None else line.colour
        measured += not line.guide
        if not points:
            hidden += [line.label] if line.label else []
            continue
        colour = _draw(axes, line, points, number)
        if line.label:
            ends.append((*points[-1], line.label, colour))
    _scales(axes, picture)
    style.bare(axes)
    unseen = f"; not shown, because 0 or without a number: {', '.join(hidden)}" if hidden else ""
    style.titled(drawn, axes, picture.finding, picture.subject + unseen)
    drawn.get_layout_engine().execute(drawn)
    _thin_ticks(axes)
    style.label_ends(axes, ends)
    style.save(drawn, path, description=_in_words(picture, ends))


def _draw(axes: Any, line: Line, points: Sequence[tuple[float, float]], number: int) -> str:
    """The line and its band; returns its colour."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if line.guide:
        axes.plot(xs, ys, color=style.GREY, linewidth=1.1, linestyle=(0, (3, 2)), zorder=1)
        if line.mark is not None:
            x, y, words = line.mark
            axes.annotate(
                words, (x, y), xytext=(0, 2), textcoords="offset points", color=style.GREY, fontsize=9, ha="center"
            )
        return style.GREY
    again, at = divmod(number, len(style.COLOURS))
    colour = style.COLOURS[at]
    marker = style.MARKERS[(at + again) % len(style.MARKERS)]
    dash = style.DASHES[(again if line.dash is None else line.dash) % len(style.DASHES)]
    axes.plot(xs, ys, color=colour, marker=marker, markersize=5, linewidth=2, linestyle=dash, zorder=3)
    _band(axes, line, xs, colour)
    _ring(axes, line, colour)
    return colour


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
        words,
        (x, y),
        xytext=(0, -13),
        textcoords="offset points",
        color=style.ink(colour),
        fontsize=9,
        va="top",
        ha="center",
    )


def _scales(axes: Any, picture: Picture) -> None:
    if picture.log_x:
        axes.set_xscale("log", base=2)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    # Where all lies close together, a logarithmic scale has no round numbers to show.
    if picture.log_y and not 0 < low <= high < LINEAR_BELOW * low:
        axes.set_yscale("log")
        if high > 100 * low:  # powers of ten are enough then, and small ticks cost half of the drawing
            axes.yaxis.set_minor_locator(_no_ticks())
    if picture.ticks:
        axes.set_xticks(list(picture.ticks), list(picture.tick_labels) or _numbers(picture.ticks))
        axes.xaxis.set_minor_locator(_no_ticks())
    if picture.y_range is not None:
        axes.set_ylim(*picture.y_range)
    axes.set_xlabel(picture.x)
    axes.set_ylabel(picture.y)


def _shown(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _numbers(ticks: Sequence[float]) -> list[str]:
    """The ticks as people write them; long powers of two as powers."""
    powers = [math.log2(tick) if tick > 0 else math.nan for tick in ticks]
    if max(ticks) >= 10**5 and all(power.is_integer() for power in powers):
        return [f"$2^{{{power:.0f}}}$" for power in powers]
    return [f"{tick:.10g}" for tick in ticks]


def _thin_ticks(axes: Any) -> None:
    """Takes the text of a tick of x away where it would touch the one before."""
    free = -math.inf
    for text in axes.get_xticklabels():
        box = text.get_window_extent()
        if not text.get_text():
            continue
        if box.x0 < free:
            text.set_visible(False)
        else:
            free = box.x1 + 4


def _in_words(picture: Picture, ends: Sequence[tuple[float, float, str, str]]) -> str:
    """What the picture shows, for those who do not see it: the axes, and where each line ends."""
    values = ", ".join(f"{label} {y:.3g}" for _, y, label, _ in ends)
    at = {x for x, _, _, _ in ends}
    where = f" at {max(at):g}" if len(at) == 1 else ""
    return f"{picture.subject}. {picture.y}, against {picture.x}." + (
        f" Lines end{where} at: {values}." if ends else ""
    )
