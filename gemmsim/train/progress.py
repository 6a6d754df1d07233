"""Progress on the terminal: a line that moves within an epoch, and one that stays after it."""

from __future__ import annotations

import sys
import time
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Writes to standard error; moving lines only where that is a terminal."""

    def __init__(self, epochs: int, enabled: bool) -> None:
        self.epochs, self.enabled = epochs, enabled
        self.moves = enabled and sys.stderr.isatty()
        self._last = 0.0

    def batch(self, epoch: int, loss: float) -> None:
        """The running loss, ten times a second at most."""
        if self.moves and time.perf_counter() - self._last > 0.1:
            self._last = time.perf_counter()
            sys.stderr.write(f"\r\x1b[Kepoch {epoch + 1}/{self.epochs}  loss {loss:.4f} ...")
            sys.stderr.flush()

    def row(self, row: dict[str, Any]) -> None:
        """An epoch's metrics."""
        if not self.enabled:
            return
        shown = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if k != "epoch"]
        start = "\r\x1b[K" if self.moves else ""
        sys.stderr.write(f"{start}epoch {row['epoch']}/{self.epochs}  {'  '.join(shown)}\n")
        sys.stderr.flush()
