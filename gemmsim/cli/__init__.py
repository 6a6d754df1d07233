"""The ``gemmsim`` command: number formats, specs in words, studies, and what this installation runs on."""

from __future__ import annotations

import gc
import os
import sys

from .loading import loading


def main() -> None:
    """Entry point of the ``gemmsim`` command.

    Exit code 0; 1 where a check failed or something went wrong on the way, as a disk that is full; 2 for a mistake in
    what was asked; 130 when interrupted. ``emulate`` and ``audit`` have their program's.
    """
    with loading():
        from .app import app
    try:
        app(prog_name="gemmsim")
    except OSError as error:  # of the help, before any command: commands tell of theirs
        if "gemmsim.cli.scripts" in sys.modules:  # it may be the program's own
            raise
        sys.exit(f"error: {error.strerror or error}")
    finally:
        gc.freeze()
        _flush()


def _flush() -> None:
    """Standard output that cannot be written has been told of; Python would tell of it again, with exit code 120."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


__all__ = ["main"]
