"""Shares of classes, one strip for each comparison, on a common axis of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import style

__all__ = ["MOST_STRIPS", "Strip", "draw_histograms"]

#: More strips than this do not fit on one page.
MOST_STRIPS = 8


@dataclass(frozen=True)
class Strip:
    """``shares`` of the classes of one comparison, which add up to 1; ``words`` at its right."""

    label: str
    shares: Sequence[float]
    words: str


def draw_histograms(
    strips: Sequence[Strip], classes: Sequence[str], middle: int, finding: str, subject: str, x: str, path: Path
) -> None:
    """Writes the picture to ``path`` (.png or .svg). Classes below ``middle`` and above it have colours of their own,
    the class in the middle another."""
    kept = list(strips)[:MOST_STRIPS]
    if len(kept) < len(strips):
        subject += f"; the first {MOST_STRIPS} of {len(strips)}"
    drawn = style.figure(height=1.9 + 1.15 * max(len(kept), 1))
    rows = drawn.subplots(max(len(kept), 1), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    colours = [style.COLOURS[0 if i < middle else 2 if i == middle else 1] for i in range(len(classes))]
    for axes, strip in zip(rows, kept, strict=False):
        axes.bar(range(len(classes)), strip.shares, width=0.82, color=colours)
        for place, share in enumerate(strip.shares):
            if share >= 0.005:
                axes.text(
                    place, share, f"{share:.0%}" if share >= 0.01 else "<1%", ha="center", va="bottom", fontsize=8
                )
        axes.set_ylim(0, 1.18)
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
        axes.annotate(
            f"{strip.label}\n{strip.words}", (1.01, 0.5), xycoords="axes fraction", fontsize=9, va="center", ha="left"
        )
        style.bare(axes, grid="y")
    last = rows[-1]
    last.set_xticks(range(len(classes)), classes, rotation=30, ha="right", fontsize=8.5)
    last.set_xlabel(x)
    style.titled(drawn, rows[0], finding, subject)
    words = "; ".join(" ".join(f"{strip.label}, {strip.words}".split()) for strip in kept)
    style.save(drawn, path, description=f"{subject}. {x}. {words}.")
