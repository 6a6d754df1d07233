"""The error of this package, and the wording its messages share."""

from __future__ import annotations

from ..formats.errors import message

__all__ = ["HardwareError", "hardware_error"]


class HardwareError(ValueError):
    """An architecture or instruction that is not in the tables, or operands that an instruction does not take."""


def hardware_error(asked: str, allowed: str, do: str) -> HardwareError:
    """``HardwareError`` that says what was asked, what is allowed and what to do."""
    return HardwareError(message(asked, allowed, do))
