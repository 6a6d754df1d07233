"""Why something does not run somewhere, as a value."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]


@dataclass(frozen=True)
class Refusal:
    """A "no", with the reason in words. Functions named ``refuses`` return one, or ``None``: nothing is against it.

    ``of``: what was refused, where people are told beside what ran instead; empty: they are not.
    """

    reason: str
    of: str = ""

    def __str__(self) -> str:
        return self.reason

    @property
    def note(self) -> str:
        """What people are told."""
        return f"{self.of}: {self.reason}"
