"""The exceptions that gemmsim.study raises for a user's mistake."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class StudyError(ValueError):
    """Raised if a study cannot run as requested: unknown name, unusable folder, missing optional package.

    Example:
        >>> gs.study.kind("growth")(K="many")
        Traceback (most recent call last):
            ...
        gemmsim.study.errors.StudyError: K has 'many'; allowed: 64, 2^13, 64,256,1024, 2^6:2^13:x2, 0:10:+2.
    """


class ModelMissingError(StudyError):
    """Raised for a study of a model that is not installed; ``gemmsim study run all`` skips it and says so.

    Example:
        >>> issubclass(gs.study.ModelMissingError, gs.study.StudyError)
        True
    """


def nearest(name: str, known: Sequence[str]) -> str:
    """' Did you mean ...?' where something in ``known`` is close to ``name``, else ""."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
