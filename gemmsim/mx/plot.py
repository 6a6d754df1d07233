"""Number lines: the values that element formats have, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gemmsim.formats import BlockFormat, Format, FormatError

from .code_table import element_of

__all__ = ["plot_formats"]

_MOST_BITS = 8
_COLOURS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9")


def plot_formats(formats: Sequence[str | Format | BlockFormat], path: str | Path) -> None:
    """Write a PNG with one line for each format and a tick at each of its values, as fractions of the largest.

    The left panel is linear, from minus to plus the largest value; the right one shows the positive values on a
    logarithmic axis. For a block format the plot shows its elements.

    Raises:
        FormatError: for an unknown format, and for one of more than 8 bits.
        ModuleNotFoundError: without matplotlib (the extra gemmsim[study]).

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gs.mx.plot_formats(["e4m3", "mxfp4"], f"{folder}/formats.png")
        ...     print([path.name for path in pathlib.Path(folder).iterdir()])
        ['formats.png']
    """
    from matplotlib.figure import Figure

    found = [(str(fmt), _values(fmt)) for fmt in formats]
    figure = Figure(figsize=(11, 1.1 + 0.62 * len(found)), dpi=150, layout="constrained")
    linear, powers = figure.subplots(1, 2, sharey=True)
    for line, (_, values) in enumerate(found):
        top = max(values)
        style = {"colors": _COLOURS[line % len(_COLOURS)], "linewidths": 0.9}
        linear.vlines([v / top for v in values], line - 0.34, line + 0.34, **style)
        powers.vlines([math.log2(v / top) for v in values if v > 0], line - 0.34, line + 0.34, **style)
    linear.set_yticks(range(len(found)), [f"{name}\n{len(values)} values" for name, values in found], fontsize=8.5)
    linear.set_title("values / largest value", loc="left", fontsize=9.5)
    powers.set_title("log2(value / largest value), positive values", loc="left", fontsize=9.5)
    linear.invert_yaxis()
    for axes in (linear, powers):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
    figure.savefig(path, format="png")


def _values(fmt: str | Format | BlockFormat) -> list[float]:
    single = element_of(fmt)
    if single.bits > _MOST_BITS:
        raise FormatError(
            f"plot of {single} with {single.bits} bits; allowed: formats of up to {_MOST_BITS} bits.\n"
            "  Wider formats have more values than a line has room for."
        )
    return single.values()
