"""Table, picture and finding of chips against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..cells import Row
from ..plots.histogram import Strip, draw_histograms
from ..ulp_differences import CLASSES, EDGES
from .pivot import mean_of

__all__ = ["hardware_finding", "hardware_plot", "hardware_table"]

_AXES = ("label", "in", "dist", "K")


def _groups(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that differ in the seed alone."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[axis] for axis in _AXES), []).append(row)
    return found


def hardware_table(rows: Sequence[Row], title: str) -> Table:
    """Means over seeds."""
    caption = (
        "equal: bits; ulp: distances in units in the last place of the coarser register, of outputs finite in both; "
        "bias: mean signed distance, sign bias: share of outputs whose first result is larger less share "
        "smaller; error: relative, both"
    )
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for heading in ("pair", "operands", "dist"):
        table.add_column(heading)
    for heading in ("K", "equal", "mean ulp", "max ulp", "bias, ulp", "sign bias", "error", "error of the other"):
        table.add_column(heading, justify="right")
    for (label, dtype, dist, k), same in _groups(rows).items():
        numbers = [mean_of(same, name) for name in ("equal", "ulp_mean", "ulp_max", "bias_ulp", "sign_bias")]
        errors = [mean_of(same, name) for name in ("rel_fro", "rel_fro_against")]
        words = ["" if number is None else f"{number:.3g}" for number in (*numbers[1:], *errors)]
        share = "" if numbers[0] is None else f"{numbers[0]:.2%}"
        table.add_row(label, dtype.removesuffix("/none"), dist, f"{k:,}", share, *words)
    return table


def hardware_finding(rows: Sequence[Row]) -> str:
    """Over all rows: the least share of equal bits, where, and the side."""
    known = [row for row in rows if row.get("equal") is not None]
    if not known:
        return ""
    if all(row["equal"] == 1 for row in known):
        return f"The same bits in all {len(known)} comparisons"
    least = min(known, key=lambda row: (row["equal"], -(row.get("ulp_mean") or 0.0)))
    where = f"{least['label']}, {least['in'].removesuffix('/none')}, {least['dist']}, K = {least['K']:,}"
    text = f"Least alike: {where}: {least['equal']:.1%} equal bits"
    if (bias := least.get("sign_bias")) is not None and abs(bias) > 0.1:
        below = sum(least[name] for name in CLASSES if "below" in name)
        above = sum(least[name] for name in CLASSES if "above" in name)
        text += f"; the first is {'smaller' if bias < 0 else 'larger'} in {max(below, above):.0%} of the outputs"
    for name, which in (("nan", "first"), ("nan_against", "second")):
        if share := least.get(name):
            text += f"; {share:.1%} of the outputs are NaN in the {which}"
    return text


def hardware_plot(rows: Sequence[Row], finding: str, path: Path) -> None:
    """A strip for each pair, format and distribution at its longest sums; means over seeds."""
    longest = max((row["K"] for row in rows), default=0)
    strips = []
    for (label, dtype, dist, k), same in _groups(rows).items():
        if k != longest:
            continue
        shares = [mean_of(same, name) or 0.0 for name in CLASSES]
        equal, bias = mean_of(same, "equal"), mean_of(same, "bias_ulp")
        words = f"{dtype.removesuffix('/none')}, {dist}\n"
        words += f"{equal or 0:.1%} equal bits" + ("" if bias is None else f"\nbias {bias:+.3g} ulp")
        strips.append(Strip(label.replace(" against ", "\nagainst "), shares, words))
    first = rows[0]
    draw_histograms(
        strips, _class_names(), len(EDGES), finding,
        f"products {first['M']} x {longest:,} x {first['N']}: share of outputs by signed distance",
        "first less second, up to so many ulp of the coarser register; left: the first is the smaller one", path,
    )  # fmt: skip


def _class_names() -> list[str]:
    above = [_edge(edge) for edge in EDGES[:-1]]
    last = f"> {_edge(EDGES[-2])}"
    return [last, *reversed(above), "equal", *above, last]


def _edge(edge: float) -> str:
    return f"{edge:.0f}" if edge < 2**12 else f"2^{math.log2(edge):.0f}"
