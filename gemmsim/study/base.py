"""What a study is: a grid of cells, a way to measure one, a way to show them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .cells import Cell, Row, Scalar
from .checks import Expectation

__all__ = ["Row", "Study"]


class Study(ABC):
    """A grid of cells, a way to measure one, and a way to show them all. Subclass it and ``register`` it.

    Workers on other processes and machines get the study by pickling, so a class that is to run there is importable.
    """

    #: Name on the command line.
    name: str
    #: One line for ``gemmsim study list``.
    title: str
    #: What varies and how it is shown: the kind this study is an instance of, "own" for a class of its own.
    kind: str = "own"
    #: Multiply-adds per second assumed while nothing has been measured in the folder: (deterministic, stochastic).
    declared_rate: ClassVar[tuple[float, float]] = (4e9, 1e9)

    @abstractmethod
    def cells(self) -> Sequence[Cell]:
        """Every cell, in the order they are computed. Cheap: nothing is trained or loaded for it."""

    @abstractmethod
    def prepare(self, folder: Path) -> Any:
        """Whatever ``inputs`` needs (data, a trained network), kept in ``folder`` so that a resumed run has the same.

        The result has an attribute ``fingerprint``: rows computed with another fingerprint are computed again.
        """

    def inputs(self, cell: Cell, context: Any) -> Any:
        """What ``evaluate`` measures ``cell`` on, made once for cells of equal ``operands``. By default ``context``."""
        return context

    @abstractmethod
    def evaluate(self, cell: Cell, inputs: Any) -> Mapping[str, Scalar]:
        """The measured columns of ``cell``. A pure function of its arguments, apart from time columns."""

    @abstractmethod
    def table(self, rows: Sequence[Row]) -> Any:
        """Something that rich can print, for the finished ``rows``."""

    @abstractmethod
    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Writes a picture of the finished ``rows`` to ``path``, as its suffix says: .png or .svg."""

    def expectations(self) -> Sequence[Expectation]:
        """What the rows should show; none by default."""
        return ()

    def finding(self, rows: Sequence[Row]) -> str:
        """What the rows show, in one sentence computed from them; "" for nothing to say."""
        return ""

    def bytes_needed(self) -> int:
        """Memory of the largest cell; 0 for little."""
        return 0
