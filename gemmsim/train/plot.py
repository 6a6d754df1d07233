"""Curves of several runs in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import TrainError

__all__ = ["curves_plot"]

#: Okabe and Ito's colours, told apart with colour-blind eyes and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def curves_plot(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | Path, columns: Mapping[str, str], *, title: str = ""
) -> None:
    """Write a PNG with a panel for each of ``columns`` (name -> label), a line for each run, over the epochs.

    Missing and null values leave gaps.

    Raises:
        TrainError: without matplotlib.
    """
    try:
        # The Figure class alone draws with Agg: no display, and no global state as pyplot would have.
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise TrainError("plots need matplotlib. Install it with: pip install 'gemmsim[study]'.") from error
    figure = Figure(figsize=(4.8 * len(columns), 4.2), dpi=150, layout="constrained")
    for number, (name, label) in enumerate(columns.items()):
        axes = figure.add_subplot(1, len(columns), number + 1)
        for colour, (run, rows) in enumerate(runs.items()):
            points = [(row["epoch"], row[name]) for row in rows if row.get(name) is not None]
            if points:
                x, y = zip(*points, strict=True)
                marker = "o" if len(points) < 15 else None
                axes.plot(x, y, color=COLOURS[colour % len(COLOURS)], label=run, marker=marker, markersize=3.5)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if number == 0:
            axes.legend(frameon=False, fontsize=9)
    figure.suptitle(title, x=0.012, ha="left", fontsize=11.5, fontweight="bold")
    figure.savefig(path, format="png")
