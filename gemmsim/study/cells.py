"""A cell: one measurement of a study, named by everything its result depends on."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Scalar = str | int | float | bool | None
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One point of a study's grid.

    ``setting`` identifies what all cells of the study share (data, network, training: see ``digest``). ``spec`` is
    the canonical string of the GemmSpec, "" if a cell has none. ``seed`` is the seed of its random bits. ``columns``
    are further tidy columns for tables and plots; ``label`` names the curve on which the cell lies.

    These are not part of the identity: ``macs``, the cost in multiply-adds; ``stochastic``; and ``operands``, which
    is equal for cells that are measured on the same inputs (see ``Study.inputs``).

    Example:
        >>> cell = gs.study.Cell("mine", "v1", ":e5m10", seed=0, columns=(("K", 64),), label="fp16")
        >>> cell.key, cell.row()["K"]
        ('1bb87a1382796383', 64)
    """

    study: str
    setting: str
    spec: str
    seed: int
    columns: tuple[tuple[str, Scalar], ...] = ()
    stochastic: bool = field(default=False, compare=False)
    macs: int = field(default=0, compare=False)
    label: str = ""
    operands: str = field(default="", compare=False)

    @functools.cached_property
    def key(self) -> str:
        """16 hexadecimal digits; equal for two cells exactly when they are the same measurement.

        Example:
            >>> one, two = (gs.study.Cell("mine", "v1", ":e5m10", seed=0, macs=macs) for macs in (1, 2))
            >>> one.key == two.key  # the cost is not part of the identity
            True
        """
        named = [self.label] if self.label else []
        return digest([self.study, self.setting, self.spec, self.seed, dict(self.columns), *named])

    def row(self) -> Row:
        """Return the identity of this cell as columns of a result row.

        Example:
            >>> row = gs.study.kind("growth")(spec=":e5m10", K=64).cells()[0].row()
            >>> row["spec"], row["K"], row["dist"], row["macs"]
            (':e5m10', 64, 'randn', 65536)
        """
        return {
            "study": self.study,
            "setting": self.setting,
            "cell": self.key,
            "label": self.label or None,
            "spec": self.spec or None,
            "seed": self.seed,
            "macs": self.macs,
            **dict(self.columns),
        }


#: Hexadecimal digits of a digest.
DIGITS = 16


def digest(value: object) -> str:
    """First 16 hexadecimal digits of the SHA-256 of ``value`` as canonical JSON (sorted keys, no blanks)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:DIGITS]


def columns(**values: Scalar) -> tuple[tuple[str, Scalar], ...]:
    """The keywords in the hashable form that Cell.columns takes, in their order."""
    return tuple(values.items())
