"""The exceptions that gemmsim.study raises for a user's mistake."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class StudyError(ValueError):
    """A study cannot run as asked: unknown name, unusable folder, missing optional package."""


class ModelMissingError(StudyError):
    """A study of a model that is not installed; ``gemmsim study run all`` passes it over and says so."""


def nearest(name: str, known: Sequence[str]) -> str:
    """' Did you mean ...?' where something in ``known`` is close to ``name``, else ""."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
