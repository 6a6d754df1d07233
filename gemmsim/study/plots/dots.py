"""A count for each accumulator under each of a few conditions: one dot each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import style

__all__ = ["Dot", "draw_dots"]


@dataclass(frozen=True)
class Dot:
    """``value`` of ``line`` under ``condition``, written beside the dot as ``text``."""

    line: str
    condition: str
    value: float
    text: str


def draw_dots(dots: Sequence[Dot], finding: str, subject: str, x: str, path: Path) -> None:
    """Writes the picture to ``path`` (.png or .svg): lines from top to bottom, values to the right."""
    lines = list(dict.fromkeys(dot.line for dot in dots))
    conditions = list(dict.fromkeys(dot.condition for dot in dots))
    drawn = style.figure(height=1.9 + 0.27 * len(dots) + 0.12 * len(lines))
    axes = drawn.add_subplot()
    y, ticks = 0.0, []
    for line in lines:
        first = y
        for dot in (dot for dot in dots if dot.line == line):
            number = conditions.index(dot.condition)
            colour = style.COLOURS[number % len(style.COLOURS)]
            axes.plot([1, dot.value], [y, y], color=colour, linewidth=1.5, alpha=0.5)
            axes.plot([dot.value], [y], color=colour, marker=style.MARKERS[number % len(style.MARKERS)], markersize=7)
            axes.annotate(
                f"{dot.condition}: {dot.text}", (dot.value, y), xytext=(8, 0), textcoords="offset points",
                va="center", fontsize=9, color=style.ink(colour),
            )  # fmt: skip
            y += 1
        ticks.append((first + y - 1) / 2)
        y += 0.5
    axes.set_yticks(ticks, lines)
    axes.invert_yaxis()
    axes.xaxis.get_major_locator().set_params(integer=True)
    top = max([dot.value for dot in dots], default=1)
    axes.set_xlim(0.8, max(top * 1.25, 2))
    axes.set_xlabel(x)
    style.bare(axes, grid="x")
    style.titled(drawn, axes, finding, subject)
    style.save(drawn, path)
