"""What all kinds share: parameters in, cells out."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ..base import Study
from ..cells import Cell, Scalar, digest
from ..checks import Expectation
from ..curves import Curve
from ..errors import StudyError
from ..operands import Operands
from ..parameters import Parameters

__all__ = ["Context", "Kind", "macs_per_s"]

P = TypeVar("P", bound=Parameters)

#: More cells than this is a slip of the pen, and the list alone would fill the memory.
MOST_CELLS = 2_000_000


@dataclass(frozen=True)
class Context:
    """Of a kind that prepares nothing: cells make their own inputs."""

    fingerprint: str


class Kind(Study, Generic[P]):
    """A study that is a value: one or more sets of parameters, with their cells joined.

    Args:
        parts: parameters; without them, those given by name, or the defaults.
        name: its name, by default that of the kind.
        title: one line, by default that of the kind.
        expectations: what the rows should show.
        given: parameters by name, as the command line or Python gives them.

    Raises:
        StudyError, SpecError, FormatError: for parameters that are not allowed.

    Example:
        >>> study = gs.study.kind("growth")(spec=["e5m10", "kahan(e5m10)"], K="2^6:2^8:x2", dist="randn")
        >>> [(cell.label, dict(cell.columns)["K"]) for cell in study.cells()][:4]
        [('e5m10', 64), ('kahan(e5m10)', 64), ('e5m10', 128), ('kahan(e5m10)', 128)]
    """

    #: Class of its parameters; the name of the kind is theirs.
    parameters: ClassVar[type[Parameters]]
    #: One line for ``gemmsim study list``.
    about: ClassVar[str]
    #: Changes when a cell's numbers change their meaning: old rows are then no longer the same cells.
    version: ClassVar[int] = 1
    #: Says what a kind of one set of parameters takes, where several sets are given; "" for kinds of any number.
    single: ClassVar[str] = ""

    def __init__(
        self, *parts: P, name: str = "", title: str = "", expectations: Sequence[Expectation] = (), **given: Any
    ) -> None:
        if parts and given:
            raise StudyError(f"give {self.parameters.kind} either parameters or names and values, not both.")
        self.parts: tuple[P, ...] = parts or (self.parameters.of(given),)  # type: ignore[assignment]
        self.kind = self.parameters.kind
        self.name = name or self.kind
        self.title = title or self.about
        self._expectations = tuple(expectations)

    @property
    def setting(self) -> str:
        """The digest of what all cells of this kind share.

        Example:
            >>> gs.study.kind("growth")(K=64).setting == gs.study.kind("growth")(K=128).setting
            True
        """
        return digest([self.kind, self.version])

    def cells(self) -> list[Cell]:
        """Return the cells of every part, in order.

        Raises:
            StudyError: for more than two million cells, or several parts of a kind that takes one.

        Example:
            >>> len(gs.study.kind("growth")(spec=["e5m10", "e8m7"], K=[64, 128], dist="randn", seeds=3).cells())
            12
        """
        if self.single and len(self.parts) > 1:
            raise StudyError(self.single)
        found: list[Cell] = []
        for part in self.parts:
            for cell in self.cells_of(part):
                found.append(cell)
                if len(found) > MOST_CELLS:
                    raise StudyError(f"{self.name}: more than {MOST_CELLS:,} cells. Shorten the lists of parameters.")
        return found

    @abstractmethod
    def cells_of(self, part: P) -> Iterator[Cell]:
        """Yield the cells of one set of parameters; those of equal operands are next to each other.

        Example:
            >>> study = gs.study.kind("growth")(spec=["e5m10", "e8m7"], K=64, dist="randn")
            >>> [cell.spec for cell in study.cells_of(study.parts[0])]
            [':e5m10', ':e8m7']
        """

    def cell(
        self, curve: Curve, seed: int, shown: tuple[tuple[str, Scalar], ...], macs: int, operands: str = ""
    ) -> Cell:
        """Return the cell of one accumulator.

        Example:
            >>> study = gs.study.kind("growth")(spec="e5m10", K=64)
            >>> study.cell(study.parts[0].spec[0], seed=0, shown=(("K", 64),), macs=64).row()["label"]
            'e5m10'
        """
        return Cell(self.name, self.setting, curve.spec, seed, shown, curve.stochastic, macs, curve.label, operands)

    def prepare(self, folder: Path) -> Any:
        """Prepare nothing: the columns of a cell say how its operands are made.

        Example:
            >>> study = gs.study.kind("growth")(K=64)
            >>> study.prepare(None).fingerprint == study.setting
            True
        """
        return Context(self.setting)

    def product_of(self, inputs: Any) -> Operands | None:
        """Return the one product that a cell with these ``inputs`` measures; None if it measures several or none.

        Example:
            >>> study = gs.study.kind("growth")(K=64, dist="randn")
            >>> study.product_of(study.inputs(study.cells()[0], None)).a.shape
            torch.Size([32, 64])
        """
        return inputs if isinstance(inputs, Operands) else None

    def expectations(self) -> Sequence[Expectation]:
        """Return the expectations given to the constructor.

        Example:
            >>> check = gs.study.Expectation((("K", 64),), "rel_fro", 0.0, 0.01, "computed here")
            >>> gs.study.kind("growth")(K=64, expectations=[check]).expectations()[0].words()
            'K=64: rel_fro in [0, 0.01]'
        """
        return self._expectations

    def arguments(self) -> list[str]:
        """Return the words that give the first part's parameters on the command line.

        Example:
            >>> gs.study.kind("growth")(spec="e5m10", K=[64, 128]).arguments()
            ['--spec', 'e5m10 = :e5m10', '--K', '64,128']
        """
        return self.parts[0].arguments()


def macs_per_s(macs: int, started: float) -> float | None:
    """Multiply-adds a second since ``started`` (of ``time.perf_counter``); None where the clock has not moved."""
    seconds = time.perf_counter() - started
    return macs / seconds if seconds else None
