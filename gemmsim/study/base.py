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

    Workers in other processes and on other machines receive the study by pickling. A class that runs there must
    therefore be importable.

    Example:
        >>> study = gs.study.get("swamping")
        >>> study.name, len(study.cells()), len(study.expectations())
        ('swamping', 8, 5)
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
        """Return every cell, in the order in which they are computed. The call is cheap: nothing is trained or loaded
        for it.

        Example:
            >>> [cell.label for cell in gs.study.get("swamping").cells()]
            ['sequential', 'sequential', 'sequential', 'sequential', 'chunk64', 'chunk64', 'chunk64', 'chunk64']
        """

    @abstractmethod
    def prepare(self, folder: Path) -> Any:
        """Prepare what ``inputs`` needs (data, a trained network), and keep it in ``folder``, so that a resumed run
        has the same.

        The result has an attribute ``fingerprint``: rows computed with another fingerprint are computed again.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     print(len(gs.study.get("swamping").prepare(pathlib.Path(folder)).fingerprint))
            16
        """

    def inputs(self, cell: Cell, context: Any) -> Any:
        """Return what ``evaluate`` measures ``cell`` on, made once for cells of equal ``operands``. By default
        ``context``.

        Example:
            >>> study = gs.study.kind("growth")(K=64, dist="randn")
            >>> operands = study.inputs(study.cells()[0], None)
            >>> operands.a.shape, operands.b.shape
            (torch.Size([32, 64]), torch.Size([64, 32]))
        """
        return context

    @abstractmethod
    def evaluate(self, cell: Cell, inputs: Any) -> Mapping[str, Scalar]:
        """Return the measured columns of ``cell``. A pure function of its arguments, except for time columns.

        Example:
            >>> study = gs.study.kind("growth")(spec=":e5m10", K=64, dist="randn")
            >>> cell = study.cells()[0]
            >>> round(study.evaluate(cell, study.inputs(cell, None))["rel_fro"], 4)  # relative error, Frobenius norm
            0.0012
        """

    @abstractmethod
    def table(self, rows: Sequence[Row]) -> Any:
        """Return an object that rich can print, for the finished ``rows``.

        Example:
            >>> type(gs.study.get("swamping").table([])).__name__
            'Table'
        """

    @abstractmethod
    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """Write a picture of the finished ``rows`` to ``path``, in the format of its suffix: .png or .svg.

        Example:
            >>> import pathlib, tempfile
            >>> study = gs.study.kind("growth")(spec=":e5m10", K=64, dist="randn")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     rows = [gs.study.Worker(study, folder=None).compute(cell) for cell in study.cells()]
            ...     study.plot(rows, pathlib.Path(folder, "plot.svg"))
            ...     print([path.name for path in pathlib.Path(folder).iterdir()])
            ['plot.svg']
        """

    def expectations(self) -> Sequence[Expectation]:
        """Return what the rows should show; none by default.

        Example:
            >>> gs.study.get("wang2018_fig3").expectations()[0].words()
            'label=chunk1, K=8192: ratio in [0.4925, 0.5075]'
        """
        return ()

    def finding(self, rows: Sequence[Row]) -> str:
        """Return what the rows show, in one sentence computed from them; "" if there is nothing to say.

        Example:
            >>> gs.study.kind("growth")(K=64).finding([])
            ''
        """
        return ""

    def bytes_needed(self) -> int:
        """Return the memory of the largest cell in bytes; 0 if it is small.

        Example:
            >>> gs.study.kind("growth")(K=2**20).bytes_needed() > 2**20
            True
        """
        return 0
