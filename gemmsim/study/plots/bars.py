"""One number for each accumulator: bars from top to bottom, the number written at the end of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import style

__all__ = ["Bar", "draw_bars"]


@dataclass(frozen=True)
class Bar:
    """``value`` of ``label``; where it was measured repeatedly the lowest and highest, shown as a thin line."""

    label: str
    value: float
    spread: tuple[float, float] | None = None


def draw_bars(bars: Sequence[Bar], finding: str, subject: str, x: str, path: Path, *, log: bool = True) -> None:
    """Writes the picture to ``path`` (.png or .svg). A value that a logarithmic scale cannot show has no bar, only its
    number: an error of exactly 0 is one."""
    drawn = style.figure(height=1.7 + 0.36 * max(len(bars), 2))
    axes = drawn.add_subplot()
    shown = [bar.value for bar in bars if _drawable(bar.value, log)]
    left = min(shown, default=1.0) / 4 if log else 0.0
    if log:
        axes.set_xscale("log")
    for place, bar in enumerate(bars):
        colour = style.COLOURS[0]
        if not _drawable(bar.value, log):
            _number(axes, left, place, f"{bar.value:.3g}")
            continue
        axes.barh(place, bar.value - left, left=left, height=0.62, color=colour, zorder=2)
        if bar.spread is not None and bar.spread[0] < bar.spread[1]:
            axes.plot(bar.spread, [place, place], color="black", linewidth=1.2, marker="|", markersize=9, zorder=3)
        _number(axes, max(bar.value, bar.spread[1] if bar.spread else 0.0), place, f"{bar.value:.3g}")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    ends = [bar.spread[1] for bar in bars if bar.spread is not None and _drawable(bar.spread[1], log)]
    top = max([*shown, *ends], default=1.0)
    axes.set_xlim(left, (top / left) ** 1.12 * left if log else top * 1.12 or 1.0)
    axes.set_xlabel(x)
    style.bare(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    style.titled(drawn, axes, finding, subject)
    words = ", ".join(f"{bar.label} {bar.value:.3g}" for bar in bars)
    style.save(drawn, path, description=f"{subject}. {x}: {words}.")


def _number(axes: Any, x: float, place: int, text: str) -> None:
    axes.annotate(text, (x, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9.5)


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)
