"""The columns that every row has: what was measured, with what, when, and how long it took."""

from __future__ import annotations

import functools
import platform
import time
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gemmsim as gs

from .cells import Cell, Row, Scalar

__all__ = ["TIME_COLUMNS", "finished_row", "versions"]

#: Columns that differ between two runs of the same cell on the same machine. No part of what was found.
TIME_COLUMNS = ("elapsed_s", "finished_at", "macs_per_s", "digest", "threads")


def finished_row(cell: Cell, kind: str, measured: Row, started: float, fingerprint: str) -> Row:
    """The row of ``cell``: identity, spec as JSON, what was measured, seconds, versions.

    ``started`` is the ``time.perf_counter()`` of the beginning. A row alone reproduces itself:
    ``GemmSpec.from_json(row["spec_json"])`` and the columns that name the operands.
    """
    elapsed = time.perf_counter() - started
    return {
        **cell.row(),
        "kind": kind,
        "spec_json": _as_json(cell.spec),
        **measured,
        "elapsed_s": round(elapsed, 6),
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "fingerprint": fingerprint,
        **versions(),
        "threads": _threads(),
    }


def versions() -> dict[str, Scalar]:
    """The columns that say with what a row was computed. ``device`` is where products ran: studies run on the CPU."""
    return {
        "library": _version("gemmsim"),
        "revision": _revision(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": "cpu",
    }


@functools.lru_cache(maxsize=4096)
def _as_json(spec: str) -> dict[str, object] | None:
    return gs.GemmSpec.parse(spec).to_json() if spec else None


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        module = __import__(package)
        return str(getattr(module, "__version__", "unknown"))


@functools.cache
def _revision() -> str | None:
    """The commit of the source tree this package lies in, without asking git; None outside a tree."""
    git = Path(gs.__file__).resolve().parents[1] / ".git"
    try:
        if git.is_file():  # a worktree: the file says where
            git = Path(git.read_text(encoding="utf-8").partition("gitdir:")[2].strip())
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head[:12]
        common = git / "commondir"
        base = (git / common.read_text(encoding="utf-8").strip()) if common.is_file() else git
        name = head.removeprefix("ref: ")
        if (base / name).is_file():
            return (base / name).read_text(encoding="utf-8").strip()[:12]
        packed = (base / "packed-refs").read_text(encoding="utf-8").splitlines()
        return next((line.split()[0][:12] for line in packed if line.endswith(f" {name}")), None)
    except OSError:
        return None


def _threads() -> int:
    import torch

    return torch.get_num_threads()
