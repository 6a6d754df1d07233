"""A number for each pair of a line and a column: shades on a logarithmic scale, the numbers written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import style

__all__ = ["MOST_LINES", "draw_heat"]

#: More lines than this are not legible on one page: the first ones are drawn, and the picture says so.
MOST_LINES = 60


def draw_heat(
    lines: Sequence[str],
    names: Sequence[str],
    values: Mapping[tuple[str, str], float | None],
    finding: str,
    subject: str,
    scale: str,
    path: Path,
) -> None:
    """Writes the picture to ``path`` (.png or .svg): ``values[line, name]`` in rows of ``lines`` and columns of
    ``names``; ``scale`` says what they are. Dark is large. A missing value is left white, 0 has the lightest shade."""
    from matplotlib import colormaps  # style.figure says what to install where there is none

    drawn = style.figure(
        width=max(7.0, 3.2 + 1.25 * len(names)), height=2.0 + 0.3 * min(max(len(lines), 2), MOST_LINES)
    )
    axes = drawn.add_subplot()
    kept = list(lines)[:MOST_LINES]
    if len(kept) < len(lines):
        subject += f"; the first {MOST_LINES} of {len(lines)} lines"
    logs = [math.log10(v) for v in values.values() if v is not None and v > 0 and math.isfinite(v)]
    low, high = min(logs, default=0.0), max(logs, default=1.0)
    shades = colormaps["cividis"].reversed()
    for y, line in enumerate(kept):
        for x, name in enumerate(names):
            value = values.get((line, name))
            if value is None:
                continue
            at = _place(value, low, high)
            axes.fill_between([x - 0.5, x + 0.5], y - 0.5, y + 0.5, color=shades(at), linewidth=0)
            ink = "white" if at > 0.55 else "black"
            axes.text(x, y, f"{value:.2g}", ha="center", va="center", fontsize=9, color=ink)
    axes.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names), default=0) > 12 else 0)
    axes.set_yticks(range(len(kept)), kept)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(kept) - 0.5, -0.5)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(f"{scale}; dark is large, shades are logarithmic")
    style.titled(drawn, axes, finding, subject)
    style.save(drawn, path, description=f"{subject}. {scale}, {len(kept)} lines by {', '.join(names)}.")


def _place(value: float, low: float, high: float) -> float:
    """Where on the scale, 0 to 1."""
    if not math.isfinite(value):
        return 1.0
    if value <= 0 or high <= low:
        return 0.0
    return (math.log10(value) - low) / (high - low)
