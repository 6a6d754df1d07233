"""The error and the warning of a search, with the number that caused them."""

from __future__ import annotations

__all__ = ["SearchError", "SearchWarning", "refusal"]


class SearchError(ValueError):
    """A search that cannot be made as asked: its message says what was asked, what is allowed and what to do."""


class SearchWarning(UserWarning):
    """A search whose figures rest on too little, such as one calibration sample."""


def refusal(asked: str, allowed: str, do: str) -> SearchError:
    """The ``SearchError`` about what was asked, with what is allowed and what to do."""
    return SearchError(f"search: {asked}; allowed: {allowed}.\n  {do}")
