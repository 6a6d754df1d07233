"""Curves of several runs in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import TrainError

__all__ = ["curves_plot"]

#: Okabe and Ito's colours, told apart with colour-blind eyes and in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: Curves that lie on one another stay visible: each has its own mark, and later ones are thinner than earlier ones.
MARKS = ("o", "s", "^", "D", "v", "P")
WIDTHS = (4.0, 3.0, 2.2, 1.6, 1.2, 0.9)


def curves_plot(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | Path, columns: Mapping[str, str], *, title: str = ""
) -> None:
    """Write a PNG with a panel for each of ``columns`` (name -> label) and a line for each run, over the epochs.

    Missing and null values leave gaps.

    Raises:
        TrainError: without matplotlib.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path, rows = pathlib.Path(folder, "curves.png"), [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}]
        ...     print(gs.train.curves_plot({"e4m3": rows}, path, {"loss": "training loss"}), path.exists())
        None True
    """
    try:
        # The Figure class alone draws with Agg: no display, and no global state as pyplot would have.
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise TrainError("plots need matplotlib. Install it with: pip install 'gemmsim[study]'.") from error
    rows_of_legend = -(-len(runs) // 2)
    figure = Figure(figsize=(4.8 * len(columns), 4.2 + 0.25 * rows_of_legend), dpi=150, layout="constrained")
    lines: dict[str, Any] = {}
    for number, (name, label) in enumerate(columns.items()):
        axes = figure.add_subplot(1, len(columns), number + 1)
        for place, (run, rows) in enumerate(runs.items()):
            points = [(row["epoch"], row[name]) for row in rows if row.get(name) is not None]
            if points:
                x, y = zip(*points, strict=True)
                at = place % len(COLOURS)
                style: dict[str, Any] = {"color": COLOURS[at], "linewidth": WIDTHS[at], "markersize": 3.0 + WIDTHS[at]}
                (lines[run],) = axes.plot(x, y, **style, marker=MARKS[at] if len(points) < 15 else None)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    if lines:
        # Below the panels, where no curve runs.
        figure.legend(lines.values(), lines.keys(), loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.012, ha="left", fontsize=11.5, fontweight="bold")
    figure.savefig(path, format="png")
