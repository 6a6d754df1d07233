"""Results for other programs: tables as CSV or parquet, and what a hardware test bench reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gemmsim._files import replacing

from .cells import Cell, Row
from .errors import StudyError, nearest
from .files import atomic_write_text, make_folder, writing
from .kinds.kind import Kind
from .operands import Operands
from .registry import of_folder
from .store import as_text, load_rows, to_csv

__all__ = ["FORMS", "export"]


def export(folder: str | Path, to: str, out: str | Path | None = None, *, cells: Iterable[str] = ()) -> Path:
    """Write the newest row of each cell in ``folder`` in another form, and return the path.

    * ``"csv"``: one file, by default ``results.csv`` in ``folder``. Missing values are empty, objects JSON.
    * ``"parquet"``: one file, ``results.parquet``. Columns of whole numbers are int64, of numbers float64, of text and
      objects (as JSON) strings; missing values are null. Needs gemmsim[table].
    * ``"hex"``: a folder, ``hex``, with a folder for each cell that is one product: operands, spec and expected bits in
      the format of ``$readmemh``; README.txt there describes the layout. Random operands are generated again. Operands
      from files are read again, by the study to which ``folder`` belongs.

    ``cells``: keys of the cells to export, as in the column ``cell``; by default all that the form can hold.

    Raises:
        StudyError: for another form, no results, a key that the folder does not have; for hex, a cell that is not
            such a product or has operands without codes, more than 16 million words, files that no longer exist or
            have changed; if ``out`` cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> study = gs.study.kind("growth")(spec=["e5m10"], K=64, dist="randn")
        >>> with TemporaryDirectory() as folder:
        ...     summary = gs.study.run(study, folder)
        ...     print(gs.study.export(folder, "csv").read_text().split(",")[:5])
        ['schema', 'study', 'setting', 'cell', 'label']
    """
    if to not in FORMS:
        raise StudyError(f"export to {to!r}; allowed: {', '.join(FORMS)}.{nearest(to, list(FORMS))}")
    rows = load_rows(folder)
    wanted = list(dict.fromkeys(cells))
    if wanted:
        by_key = {row["cell"]: row for row in rows}
        for key in wanted:
            if key not in by_key:
                raise StudyError(f"'{folder}' has no finished cell {key!r}.{nearest(key, list(by_key))}")
        rows = [by_key[key] for key in wanted]
    name, write = FORMS[to]
    path = Path(folder) / name if out is None else Path(out)
    make_folder(path.parent)
    write(rows, path, bool(wanted), Path(folder))
    return path


def _csv(rows: Sequence[Row], path: Path, chosen: bool, folder: Path) -> None:
    atomic_write_text(path, to_csv(rows))


def _parquet(rows: Sequence[Row], path: Path, chosen: bool, folder: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise StudyError("parquet needs pyarrow. Install it: pip install 'gemmsim[table]'.") from error
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column(pyarrow, [row.get(name) for row in rows]) for name in names}
    with writing(path), replacing(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(columns), temporary)


def _column(pyarrow: Any, values: Sequence[Any]) -> Any:
    """Typed by what is in it: a column of numbers of both sorts is one of floats, of anything mixed one of text."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, bool) for value in there):
        return pyarrow.array(values, pyarrow.bool_())
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in there)
    if there and numbers and all(isinstance(value, int) and abs(value) < 2**63 for value in there):
        return pyarrow.array(values, pyarrow.int64())
    if there and numbers:
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    return pyarrow.array([None if value is None else as_text(value) for value in values], pyarrow.string())


def _hex(rows: Sequence[Row], path: Path, chosen: bool, folder: Path) -> None:
    from .bench_vectors import write_vectors

    write_vectors(rows, path, chosen=chosen, measured=_Measured(folder))


class _Measured:
    """The operands of a folder's rows, made by its study as they were when the rows were computed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: Cells that share operands are neighbours.
        self._last: tuple[str, Operands | None] = ("", None)

    @functools.cached_property
    def study(self) -> Kind[Any] | None:
        """That of the folder, if it is of a kind: others do not say which product a cell is."""
        found = of_folder(self.folder)
        return found if isinstance(found, Kind) else None

    @functools.cached_property
    def cells(self) -> dict[str, Cell]:
        """Its cells by key."""
        return {} if self.study is None else {cell.key: cell for cell in self.study.cells()}

    @functools.cached_property
    def context(self) -> Any:
        """What it prepared."""
        assert self.study is not None
        return self.study.prepare(self.folder)

    def __call__(self, row: Row) -> tuple[Tensor, Tensor] | None:
        cell = self.cells.get(row["cell"])
        if self.study is None or cell is None:
            return None
        if row.get("fingerprint") != str(self.context.fingerprint):
            raise StudyError(
                f"cell {row['cell']} was computed from other operands than there are now. Run the study again, then "
                "export it."
            )
        name = cell.operands or cell.key
        if self._last[0] != name:
            self._last = name, self.study.product_of(self.study.inputs(cell, self.context))
        found = self._last[1]
        return None if found is None else (found.a, found.b)


#: Form -> (name of what is written without --out, writer of rows).
FORMS: dict[str, tuple[str, Callable[[Sequence[Row], Path, bool, Path], None]]] = {
    "csv": ("results.csv", _csv),
    "parquet": ("results.parquet", _parquet),
    "hex": ("hex", _hex),
}
