"""A refusal: the reason why something cannot run somewhere, as a value instead of an exception."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]


@dataclass(frozen=True)
class Refusal:
    """The reason why something is refused, in words.

    Functions named ``refuses`` return one, or ``None`` if they have no objection. ``of`` says what was refused. If it
    is not empty, the reason is reported to the user together with what ran instead.
    """

    reason: str
    of: str = ""

    def __str__(self) -> str:
        return self.reason

    @property
    def note(self) -> str:
        """The text that is reported to the user."""
        return f"{self.of}: {self.reason}"
