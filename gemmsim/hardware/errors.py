"""The error of this package, and the wording its messages share."""

from __future__ import annotations

from ..formats.errors import message

__all__ = ["HardwareError", "hardware_error"]


class HardwareError(ValueError):
    """An architecture or instruction that is not in the tables, or operands that an instruction does not take.

    Example:
        >>> gs.hardware.instruction("hopper", "wgmma.m64n8k64.f32.e4m3.e4m3")
        Traceback (most recent call last):
            ...
        gemmsim.hardware.errors.HardwareError: hopper has no instruction 'wgmma.m64n8k64.f32.e4m3.e4m3' ...
          Did you mean 'wgmma.m64n8k32.f32.e4m3.e4m3' ...
    """


def hardware_error(asked: str, allowed: str, do: str) -> HardwareError:
    """``HardwareError`` that says what was asked, what is allowed and what to do."""
    return HardwareError(message(asked, allowed, do))
