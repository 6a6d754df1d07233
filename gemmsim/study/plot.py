"""The picture of an accumulator study: accuracy against significand bits, one line per rounding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import StudyError
from .files import atomic_path
from .summary import Point, bits_needed, points, rounding_label, truth_row

Row = dict[str, Any]

#: Okabe and Ito's colours, told apart with colour-blind eyes and in grey print.
COLOURS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "v", "D", "^", "P")
TOLERANCE = 0.01
#: Least distance between two labels, in percent of accuracy.
LABEL_GAP = 6.5


def accuracy_plot(rows: Sequence[Row], path: Path, *, subject: str, guessing: float) -> None:
    """Writes a PNG: accuracy in percent against the accumulator's significand bits, the exact pass as a line.

    ``guessing`` is the accuracy of a blind guess, drawn as the floor. The title states the finding, computed from the
    rows. StudyError without matplotlib.
    """
    figure_class = _figure_class()
    found = points(rows)
    truth = truth_row(rows)
    figure = figure_class(figsize=(9, 5.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    if truth is not None:
        exact = f"exact (float64): {100 * truth['accuracy']:.1f} %"
        _level(axes, truth["accuracy"], exact, "0.25", (0, (5, 3)))
    _level(axes, guessing, f"guessing: {100 * guessing:.0f} %", "0.55", (0, (1, 2)))
    for number, rounding in enumerate(dict.fromkeys(point.rounding for point in found)):
        series = sorted((p for p in found if p.rounding == rounding), key=lambda p: p.significand_bits)
        _draw(axes, series, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
    _decorate(axes, found)
    figure.suptitle(finding(found, truth), x=0.012, ha="left", fontsize=12.5, fontweight="bold")
    seeds = max((point.seeds for point in found), default=1)
    band = f"; stochastic: mean and range of {seeds} seeds" if seeds > 1 else ""
    axes.set_title(subject + band, loc="left", fontsize=9.5, color="0.35")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix(".") or "png")


def finding(found: Sequence[Point], truth: Row | None) -> str:
    """What the rows show, in one sentence: how many significand bits each rounding needs."""
    roundings = list(dict.fromkeys(point.rounding for point in found))
    if truth is None or not roundings:
        return "Accuracy by accumulator (unfinished)"
    groups: dict[int | None, list[str]] = {}
    for rounding in roundings:
        needed = bits_needed([p for p in found if p.rounding == rounding], truth["accuracy"], TOLERANCE)
        groups.setdefault(needed, []).append(rounding_label(rounding))
    parts = [
        f"{'more than tested' if bits is None else bits} (rounding {' or '.join(words)})"
        for bits, words in groups.items()
    ]
    return f"Significand bits an accumulator needs to stay within 1 point of exact:\n{', '.join(parts)}"


def _draw(axes: Any, series: Sequence[Point], colour: str, marker: str) -> None:
    bits = [point.significand_bits for point in series]
    values = [100 * point.accuracy for point in series]
    axes.plot(bits, values, color=colour, marker=marker, markersize=6, linewidth=2, zorder=3)
    if any(point.seeds > 1 for point in series):
        low, high = [100 * p.lowest for p in series], [100 * p.highest for p in series]
        axes.fill_between(bits, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def _decorate(axes: Any, found: Sequence[Point]) -> None:
    _label_lines(axes, found)
    names: dict[int, list[str]] = {}
    for point in sorted(found, key=lambda point: point.significand_bits):
        if point.format not in names.setdefault(point.significand_bits, []):
            names[point.significand_bits].append(point.format)
    axes.set_xticks(list(names), [f"{bits}\n{', '.join(formats)}" for bits, formats in names.items()])
    axes.set_xlabel(
        "significand bits of the accumulator in both matrix products (leading bit included), and its format"
    )
    axes.set_ylabel("test accuracy (%)")
    axes.set_ylim(0, 103)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _level(axes: Any, accuracy: float, label: str, colour: str, dashes: Any) -> None:
    """A horizontal line over the whole width, named at its right end."""
    axes.axhline(100 * accuracy, color=colour, linewidth=1.2, linestyle=dashes, zorder=1)
    axes.annotate(
        label,
        (1, 100 * accuracy),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
        color=colour,
    )


def _label_lines(axes: Any, found: Sequence[Point]) -> None:
    """Each rounding's name below and right of its lowest point in the upper half, labels kept apart from each other."""
    taken: list[float] = []
    anchors = []
    for number, rounding in enumerate(dict.fromkeys(point.rounding for point in found)):
        series = [point for point in found if point.rounding == rounding]
        upper = [point for point in series if point.accuracy >= 0.5] or series
        anchors.append((min(upper, key=lambda point: point.accuracy), rounding, COLOURS[number % len(COLOURS)]))
    for point, rounding, colour in sorted(anchors, key=lambda anchor: -anchor[0].accuracy):
        height = min([100 * point.accuracy - LABEL_GAP, *(other - LABEL_GAP for other in taken)])
        taken.append(height)
        text = f"{rounding_label(rounding)} ({rounding})"
        place = (point.significand_bits + 0.25, height)
        axes.annotate(text, place, va="center", color=colour, fontsize=10, fontweight="bold")


def _figure_class() -> Any:
    try:
        # The Figure class alone draws with Agg: no display, and no global state as pyplot would have.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StudyError("plots need matplotlib. Install it with: pip install 'gemmsim[study]'.") from error
    return Figure
