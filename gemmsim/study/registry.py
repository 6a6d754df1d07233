"""What a study is, and the table of studies by name."""

from __future__ import annotations

import difflib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .cells import Cell, Scalar
from .errors import StudyError

Row = dict[str, Any]


class Study(ABC):
    """A grid of cells, a way to measure one, and a way to show them all. Subclass it and ``register`` it."""

    #: Name on the command line.
    name: ClassVar[str]
    #: One line for ``gemmsim study list``.
    title: ClassVar[str]
    #: Multiply-adds per second assumed while nothing has been measured in the folder: (deterministic, stochastic).
    declared_rate: ClassVar[tuple[float, float]] = (4e9, 1e9)

    @abstractmethod
    def cells(self) -> Sequence[Cell]:
        """Every cell, in the order they are computed. Cheap: nothing is trained or loaded for it."""

    @abstractmethod
    def prepare(self, folder: Path) -> Any:
        """Whatever ``evaluate`` needs (data, a trained network), kept in ``folder`` so that a resumed run has the same.

        The result has an attribute ``fingerprint``: rows computed with another fingerprint are computed again.
        """

    @abstractmethod
    def evaluate(self, cell: Cell, context: Any) -> dict[str, Scalar]:
        """The measured columns of ``cell``. A pure function of its arguments, apart from time columns."""

    @abstractmethod
    def table(self, rows: Sequence[Row]) -> Any:
        """Something that rich can print, for the finished ``rows``."""

    @abstractmethod
    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Writes a picture of the finished ``rows`` to ``path`` (PNG)."""


#: Built-in studies as "module:class", so that listing them imports neither scikit-learn nor matplotlib.
_STUDIES: dict[str, str | Callable[[], Study]] = {
    "digits": "gemmsim.study.digits:DigitsStudy",
    "language": "gemmsim.study.language:LanguageStudy",
}


def register(name: str, factory: Callable[[], Study]) -> None:
    """Makes ``factory()`` available as ``name``.

    Raises:
        StudyError: if the name is taken by another factory.
    """
    if _STUDIES.get(name, factory) is not factory:
        raise StudyError(f"a study named {name!r} exists already; choose another name. Known: {', '.join(names())}.")
    _STUDIES[name] = factory


def names() -> list[str]:
    """The registered names, sorted."""
    return sorted(_STUDIES)


def get(name: str) -> Study:
    """The study called ``name``.

    Raises:
        StudyError: when there is none; it names the nearest one.
    """
    entry = _STUDIES.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise StudyError(f"unknown study {name!r}.{hint} Known: {', '.join(names())}.")
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
    study = entry()
    assert isinstance(study, Study)
    return study
