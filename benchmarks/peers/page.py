"""Writes docs/measurements/peers.md and its plot from the results of compare.py (``make bench-peers``)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "peers.jsonl"
PAGE = ROOT / "docs" / "measurements" / "peers.md"
PLOT = ROOT / "docs" / "measurements" / "pictures" / "peers.svg"
STYLE = {"svg.hashsalt": "gemmsim", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}

INTRODUCTION = """# gemmsim next to other packages

This page compares gemmsim with {count} packages from the package index that compute some of the same things.
`make bench-peers` makes it anew: it installs the packages in an environment of its own, compares the results of both
sides element by element, and then times both in turn. Each figure is a median of rounds in one process on one thread.

A ratio above 1 means that gemmsim is faster. The last column is what the machine does with the same amount of work and
no rounding: it copies as many float32 numbers, or multiplies float32 matrices of the same shape with `torch.mm`. Most
of these packages were not built for speed on a CPU, and several run on GPUs, which this page does not measure.

![Ratio of speeds, a bar for each task, grouped by package; the table has the figures](pictures/peers.svg)
"""

MACHINE = """
## Machine and versions

| | |
|---|---|
| processor | {cpu}, one thread |
| instruction set of gemmsim | {isa} |
| gemmsim | {gemmsim}, compiled by {compiler} |
| Python, PyTorch, numpy | {python}, {torch}, {numpy} |

The rows with all figures are in `benchmarks/results/peers.jsonl`. [The CPU library's own measurements](cpu.md) cover
what no other package computes.
"""


def rate(per_second: float) -> str:
    """1234567.0 -> "1.2 M"."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{per_second / size:.3g} {letter}"
    return f"{per_second:.3g}"


def equality(row: dict[str, Any]) -> str:
    if row["equal"] is None:
        return row["note"]
    return "all" if row["equal"] == 1 else f"{row['equal']:.4%}: {row['note']}"


def table(rows: list[dict[str, Any]], unit: str, title: str) -> list[str]:
    per_second = {"elements": "elements/s", "multiply-adds": "MAC/s"}[unit]
    lines = [
        f"\n## {title}\n",
        f"| package | its call | gemmsim | ratio | equal results | its {per_second} | gemmsim's | limit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["unit"] == unit:
            theirs, ours, limit = (rate(row[f"{side}_per_second"]) for side in ("peer", "gemmsim", "limit"))
            call, spec = (row[key].replace("|", "\\|") for key in ("call", "spec"))
            lines.append(
                f"| {row['peer']} {row['version']} | `{call}` | `{spec}` | **{row['ratio']:.3g}** | {equality(row)} "
                f"| {theirs} | {ours} | {limit} |"
            )
    return lines


def plot(rows: list[dict[str, Any]]) -> None:
    labels = [f"{row['peer']}: {row['task']}, {row['spec']}" for row in rows]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 0.27 * len(rows) + 0.8))
        colours = ["#0072B2" if row["unit"] == "elements" else "#D55E00" for row in rows]
        bars = axes.barh(range(len(rows)), [row["ratio"] for row in rows], color=colours)
        axes.bar_label(bars, [f"{row['ratio']:.3g}" for row in rows], padding=3, fontsize=8)
        axes.set_yticks(range(len(rows)), labels)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.axvline(1, color="#666666", linewidth=1)
        axes.set_xlim(left=min(0.5, *(0.8 * row["ratio"] for row in rows)), right=2 * max(row["ratio"] for row in rows))
        axes.set_xlabel("speed of gemmsim over speed of the package (blue: casts, orange: products)")
        PLOT.parent.mkdir(exist_ok=True)
        figure.savefig(PLOT, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)


def page(rows: list[dict[str, Any]]) -> str:
    machine = rows[0]["machine"]
    lines = [
        INTRODUCTION.format(count=len({row["peer"] for row in rows})),
        *table(rows, "elements", "Casts and encodings"),
        *table(rows, "multiply-adds", "Products"),
        MACHINE.format(**machine),
    ]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()).replace("\n\n\n", "\n\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    rows = [json.loads(line) for line in parser.parse_args().results.read_text().splitlines()]
    plot(rows)
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
