"""The column ``macs_per_s``."""

from __future__ import annotations

import time

__all__ = ["macs_per_s"]


def macs_per_s(macs: int, started: float) -> float | None:
    """Multiply-adds a second since ``started`` (of ``time.perf_counter``); None where the clock has not moved."""
    seconds = time.perf_counter() - started
    return macs / seconds if seconds else None
