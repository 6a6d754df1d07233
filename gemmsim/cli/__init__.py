"""The ``gemmsim`` command: number formats, specs in words, studies, and what this installation runs on."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``gemmsim`` command. Exit code 0; 2 for a user's mistake; 130 when interrupted."""
    from .app import app

    app()


__all__ = ["main"]
