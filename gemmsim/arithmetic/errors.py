"""The errors of this package, and the wording its messages share."""

from __future__ import annotations

from ..formats import FormatError

__all__ = ["SelectError", "SpecError", "SpecFormatError", "UnsupportedSpec", "spec_error"]


class SpecError(ValueError):
    """A GEMM specification or accumulator that has no meaning: bad string, bad argument, or a contradiction."""


class SpecFormatError(SpecError, FormatError):
    """A format, rounding or overflow policy inside a specification that does not exist; caught by either name."""


class UnsupportedSpec(ValueError):
    """A specification that has a meaning but that the asked backend cannot compute."""


class SelectError(ValueError, IndexError):
    """A palette whose ``select`` is missing or holds an index of no member."""


def spec_error(asked: str, allowed: str, do: str) -> SpecError:
    """``SpecError`` that says what was asked, what is allowed and what to do."""
    return SpecError(f"{asked}; allowed: {allowed}.\n  {do}")
