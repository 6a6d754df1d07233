"""Results on disk: ``results.jsonl`` is the truth, ``results.csv`` the same rows for spreadsheets.

One line of JSON per finished cell. Each row carries a digest of itself, so a line that was cut short, damaged or edited
is noticed on reading; it is reported and its cell counts as not finished. Every write replaces the whole file by a
rename, so an interrupted run leaves the last complete state.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .cells import digest
from .errors import StudyError
from .files import atomic_write_text, make_folder

Row = dict[str, Any]

#: Version of the row layout. Rows of another version are not reused.
SCHEMA = 1


class ResultStore:
    """The finished rows of one folder, by cell key. Loading never fails on a damaged line; it reports it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = make_folder(Path(folder))
        self.path = self.folder / "results.jsonl"
        self.csv_path = self.folder / "results.csv"
        rows, self.problems = read_rows(self.folder)
        self._rows = {row["cell"]: row for row in rows}

    def __contains__(self, cell: object) -> bool:
        return cell in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, cell: str) -> Row | None:
        """The row of the cell with this key, or None."""
        return self._rows.get(cell)

    def rows(self) -> list[Row]:
        """All rows, in the order they were first finished."""
        return list(self._rows.values())

    def add(self, row: Row) -> Row:
        """Stores ``row`` (replacing the same cell's), stamped with schema and digest, and returns it as stored."""
        stamped = stamp(row)
        self._rows[stamped["cell"]] = stamped
        self._save()
        return stamped

    def _save(self) -> None:
        lines = [json.dumps(row, ensure_ascii=True) for row in self._rows.values()]
        atomic_write_text(self.path, "".join(line + "\n" for line in lines))
        atomic_write_text(self.csv_path, to_csv(self.rows()))


def load_rows(folder: str | Path) -> list[Row]:
    """The rows of ``folder``, damaged lines left out.

    Raises:
        StudyError: when the folder holds no results.
    """
    path = Path(folder) / "results.jsonl"
    if not path.is_file():
        raise StudyError(f"no results in '{folder}' (looked for results.jsonl). Run the study first.")
    return read_rows(path.parent)[0]


def stamp(row: Row) -> Row:
    """``row`` with ``schema`` and a ``digest`` of all its other columns, as it will read back from JSON."""
    body = json.loads(json.dumps({"schema": SCHEMA, **row}))
    body.pop("digest", None)
    return {**body, "digest": digest(body)}


def to_csv(rows: Sequence[Row]) -> str:
    """``rows`` as CSV with a header; columns in order of first appearance, missing values empty."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def read_rows(folder: Path) -> tuple[list[Row], list[str]]:
    """The intact rows of ``folder``'s results.jsonl, and a sentence for each damaged line. Empty without the file."""
    path = folder / "results.jsonl"
    if not path.exists():
        return [], []
    rows: list[Row] = []
    problems: list[str] = []
    for number, line in enumerate(_lines(path), start=1):
        reason = _reason_to_reject(line)
        if reason is None:
            rows.append(json.loads(line))
        else:
            problems.append(f"{path.name} line {number}: {reason}; its cell will be computed again")
    return rows, problems


def _lines(path: Path) -> Iterable[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise StudyError(f"cannot read '{path}': {error.strerror}.") from error
    return [line for line in text.split("\n") if line.strip()]


def _reason_to_reject(line: str) -> str | None:
    try:
        row = json.loads(line)
    except ValueError:
        return "not complete JSON"
    if not isinstance(row, dict) or not isinstance(row.get("cell"), str):
        return "not a result row"
    if row.get("schema") != SCHEMA:
        return f"row layout {row.get('schema')!r}, this version writes {SCHEMA}"
    body = {name: value for name, value in row.items() if name != "digest"}
    if digest(body) != row.get("digest"):
        return "does not match its digest"
    return None
