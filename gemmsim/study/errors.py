"""The one exception that gemmsim.study raises for a user's mistake."""

from __future__ import annotations


class StudyError(ValueError):
    """A study cannot run as asked: unknown name, unusable folder, missing optional package."""
