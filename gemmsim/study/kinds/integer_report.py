"""Table, picture and finding of integer registers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..cells import Row
from ..plots.lines import Line, Picture, draw_lines
from .pivot import mean_of, pivot_table, series

__all__ = ["SHOWN", "integer_finding", "integer_plot", "integer_table"]

#: Metrics a picture or table may show, and their words.
SHOWN = {
    "overflow_rate": "share of the sums that leave the register",
    "sqnr_db": "signal over overflow noise, dB",
    "accuracy": "test accuracy",
}
_GROUPS = ("operands", "K", "dist", "layer", "role")


def _by(rows: Sequence[Row]) -> list[str]:
    """What tells curves apart: the label, and lengths, distributions, layers and roles where there are several."""
    several = [name for name in ("K", "dist", "layer", "role") if len({row.get(name) for row in rows}) > 1]
    return ["label", *(name for name in several if name != "K" or "layer" not in several)]


def integer_table(rows: Sequence[Row], metric: str, title: str) -> Any:
    """Means over seeds, and the certified width."""
    certified = ", ".join(f"{operands} {bits}" for operands, bits in _certified(rows).items())
    note = f"{SHOWN[metric]}; no input overflows from this width on (A2Q certificate): {certified}"
    return pivot_table(rows, "P", metric, title=title, by=_by(rows), caption=note)


def _certified(rows: Sequence[Row]) -> dict[str, int]:
    """Formats of the operands, the length of the sums where there are several -> widest certified width."""
    found: dict[str, int] = {}
    several = len({row.get("K") for row in rows}) > 1
    for row in rows:
        name = f"{row['operands']}, K = {row['K']}" if several else str(row["operands"])
        if row.get("layer") is not None:
            name = f"{row['operands']}, {row['layer']} {row['role']}"
        found[name] = max(found.get(name, 0), row["certified_bits"])
    return found


def integer_finding(rows: Sequence[Row]) -> str:
    """The least width from which on nothing overflows in these data; the least that is certified for all."""
    parts = []
    for key in dict.fromkeys(tuple(row.get(name) for name in _GROUPS) for row in rows):
        group = [row for row in rows if tuple(row.get(name) for name in _GROUPS) == key]
        least = None
        for bits in sorted({row["P"] for row in group}, reverse=True):
            if mean_of([row for row in group if row["P"] == bits], "overflow_rate"):
                break
            least = bits
        named = str(key[0]) + (f", {key[3]} {key[4]}" if key[3] is not None else "")
        named += f", K = {key[1]:,}" if key[1] is not None else ""
        seen = f"{least} bits" if least is not None else f"more than {max(row['P'] for row in group)} bits"
        parts.append(f"{named}: {seen} here, {max(row['certified_bits'] for row in group)} for any input")
    return "Registers that do not overflow: " + "; ".join(parts) if parts else ""


def _curves(rows: Sequence[Row]) -> list[Row]:
    """The rows of curves with several widths; all rows where each has one: a point alone is no curve."""
    several = {row["label"] for row in rows if any(o["P"] != row["P"] and o["label"] == row["label"] for o in rows)}
    return [row for row in rows if not several or row["label"] in several]


def _drawn_by(rows: Sequence[Row], metric: str) -> list[str]:
    """As ``_by``; but a register leaves its range the first time wherever it then goes, wrapping or saturating."""
    return ["operands", *_by(rows)[1:]] if metric == "overflow_rate" else _by(rows)


def integer_plot(rows: Sequence[Row], metric: str, finding: str, path: Path) -> None:
    """The metric against the width; a vertical line where the certificate begins."""
    factor = 1 if metric == "sqnr_db" else 100
    lines = [
        Line(
            ", ".join(str(part) for part in key),
            [(x, factor * mean) for x, mean, _, _ in points],
            [(factor * low, factor * high) for _, _, low, high in points],
        )
        for key, points in series(_curves(rows), "P", metric, by=_drawn_by(rows, metric)).items()
    ]
    shown = [y for line in lines for _, y in line.points]
    low, top = min([0.0, *shown]), max(shown, default=1.0)
    for operands, bits in _certified(rows).items():
        # Two halves that meet in the middle, where no curve ends: the name stands there.
        lines.append(Line(f"certified, {operands}", [(bits, low), (bits, (low + top) / 2)], guide=True))
        lines.append(Line("", [(bits, top), (bits, (low + top) / 2)], guide=True))
    widths = sorted({row["P"] for row in rows} | set(_certified(rows).values()))
    picture = Picture(
        finding=finding,
        subject=_subject(rows),
        x="P, bits of the register",
        y=SHOWN[metric] + (" (%)" if factor == 100 else ""),
        log_x=False,
        log_y=False,
        ticks=widths,
    )
    draw_lines(lines, picture, path)


def _subject(rows: Sequence[Row]) -> str:
    first = rows[0]
    integers = ", ".join(dict.fromkeys(str(row["operands"]) for row in rows))
    if first["task"] == "digits":
        return f"digits network, {first['M']} images, integers {integers}"
    if first["task"] == "files":
        operands = f"{first['a']} x {first['b']}" if first.get("a") else f"operands captured in {first['captured']}"
        return f"{operands}, integers {integers}"
    dists = ", ".join(dict.fromkeys(str(row["dist"]) for row in rows))
    return f"products {first['M']} x K x {first['N']}, operands {dists}, integers {integers}"
