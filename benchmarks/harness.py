"""Measuring: check equality, warm up, interleave the competitors, take medians, write JSON lines.

Machines are shared and noisy, so that the figure to trust is a ratio within one round: every round runs each
competitor once, ratios are formed per round, and their median is reported beside the median time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import torch

import gemmsim as gs
from gemmsim.backends import cpu

Runs = dict[str, Callable[[], object]]


def machine() -> dict[str, object]:
    """What the figures depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        family = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("cpu family")
        ]
        model = f"{names[0]} (family {family[0]})" if names and family else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "isa": cpu.isa(),
        "compiler": cpu.build_info(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "gemmsim": gs.__version__,
        "revision": revision(),
    }


def revision() -> str:
    """Commit of the working tree, with "+" if it has changes; "unknown" outside git."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        )
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def measure(
    runs: Runs, *, rounds: int = 9, inner: int = 1, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds per call of each competitor, one figure per round, rounds interleaved; one warm-up call each.

    ``clock``: ``time.process_time`` for one thread on a machine that others use.
    """
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            for _ in range(inner):
                run()
            times[name].append((clock() - start) / inner)
    return times


def ratio(times: dict[str, list[float]], base: str, name: str) -> float:
    """Median over rounds of (time of ``base``) / (time of ``name``): above 1, ``name`` is faster."""
    return statistics.median(b / n for b, n in zip(times[base], times[name], strict=True))


class Report:
    """JSON lines on a file or standard output; a readable line per figure on standard error."""

    def __init__(self, path: str | None) -> None:
        self._lines: list[str] = []
        self._path = path
        self._machine = machine()

    def add(self, **fields: object) -> None:
        self._lines.append(json.dumps({**fields, "machine": self._machine}))
        shown = {k: (f"{v:.4g}" if isinstance(v, float) else v) for k, v in fields.items()}
        print("  ".join(f"{k}={v}" for k, v in shown.items()), file=sys.stderr)

    def close(self) -> None:
        text = "\n".join(self._lines) + "\n"
        if self._path is None:
            print(text, end="")
            return
        target = Path(self._path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        temporary.write_text(text)
        temporary.replace(target)


def options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", help="file for the JSON lines (default: standard output)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="small problems: does it run at all")
    return parser.parse_args()
