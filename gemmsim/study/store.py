"""Results on disk: ``results.jsonl`` is the truth, one line of JSON for each finished cell, only ever appended to.

Each row carries a digest of itself. On opening, a last line that was cut short (its writer died) is truncated away; any
other line that does not hold is moved to ``results.damaged.jsonl`` with the reason, and its cell counts as not
finished. A newer row of a cell supersedes an older one; where more than half are superseded, the file is written anew
beside itself and renamed. ``study.json`` says whose folder it is.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmsim._files import FileError, read_text

from .cells import Row, digest
from .errors import StudyError
from .files import atomic_write_text, make_folder, writing
from .row_text import SCHEMA, as_line, stamp

#: Seconds of computing that may be lost, and are done again, when the process is killed: rows that are finished within
#: them are written together. A row costs 50 microseconds beside others, three times that among the work of cells.
WRITE_EVERY = 0.25


@dataclass(frozen=True)
class Damage:
    """A line that is no row: its number from 1, its text, why it was rejected."""

    number: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"results.jsonl line {self.number}: {self.reason}; its cell will be computed again"


class ResultStore:
    """The finished rows of one folder, by cell key. Use it as a context manager, or ``close`` it: that writes and
    syncs.

    Opening never fails because of a damaged line; ``problems`` lists such lines.

    Raises:
        StudyError: for an unusable folder, rows of another version, a full disk.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, gs.study.ResultStore(folder) as store:
        ...     store.add(gs.study.Cell("mine", "v1", ":e5m10", seed=0, label="fp16").row() | {"error": 0.002})
        ...     print([(row["label"], row["error"]) for row in store.rows()])
        [('fp16', 0.002)]
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = make_folder(Path(folder))
        self.path = self.folder / "results.jsonl"
        found, damages = _examine(self.path)
        self._rows: dict[str, Row] = {row["cell"]: row for row in found}
        self.problems = [str(damage) for damage in damages]
        if damages:
            self._set_aside(damages)
        if damages or len(found) > 2 * len(self._rows):
            atomic_write_text(self.path, "".join(as_line(row) for row in self._rows.values()))
        self._waiting: list[Row] = []
        self._written = time.monotonic()
        self._handle: io.FileIO | None = None
        self._end = 0
        self._forcing = Forcing()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, cell: object) -> bool:
        return cell in self._written_rows()

    def __len__(self) -> int:
        return len(self._written_rows())

    def get(self, cell: str) -> Row | None:
        """Return the row of the cell with this key, as stored, or None.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, gs.study.ResultStore(folder) as store:
            ...     print(store.get("0" * 16))
            None
        """
        return self._written_rows().get(cell)

    def rows(self) -> list[Row]:
        """Return all rows, in the order in which they were first finished.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, gs.study.ResultStore(folder) as store:
            ...     print(store.rows())
            []
        """
        return list(self._written_rows().values())

    def add(self, row: Row) -> None:
        """Append ``row`` with schema and digest; it replaces an earlier row of the same cell.

        The row is written at once if the last write was ``WRITE_EVERY`` seconds ago, otherwise together with later
        rows. If the process is killed, the lost rows took no longer than that to compute. About a second after it is
        written, a row also survives a crash of the machine.

        Raises:
            StudyError: if the disk is full. Rows that were written are complete.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, gs.study.ResultStore(folder) as store:
            ...     for error in (0.5, 0.002):  # twice the same cell
            ...         store.add(gs.study.Cell("mine", "v1", ":e5m10", seed=0).row() | {"error": error})
            ...     print([row["error"] for row in store.rows()])
            [0.002]
        """
        self._waiting.append(row)
        if time.monotonic() - self._written >= WRITE_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait.

        Raises:
            StudyError: as for ``add``.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, gs.study.ResultStore(folder) as store:
            ...     store.add(gs.study.Cell("mine", "v1", ":e5m10", seed=0, label="fp16").row())
            ...     print(store.flush(), len(gs.study.load_rows(folder)))
            None 1
        """
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._append([stamp(row) for row in waiting])
            self._written = time.monotonic()

    def close(self) -> None:
        """Write waiting rows, force everything to the disk, and close the file.

        Raises:
            StudyError: if the disk does not accept it.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     gs.study.ResultStore(folder).close()
        """
        self.flush()
        handle, self._handle = self._handle, None
        if handle is not None:
            with writing(self.path), handle:
                self._forcing.finish(handle.fileno())

    def _written_rows(self) -> dict[str, Row]:
        self.flush()
        return self._rows

    def _append(self, stamped: Sequence[tuple[Row, str]]) -> None:
        handle = self._handle or self._open()
        data = "".join(line for _, line in stamped).encode("ascii")
        taken = 0
        try:
            while taken < len(data):  # the disk is nearly full: the next call says so
                taken += handle.write(data[taken:])
            self._forcing.written(handle.fileno())
        except OSError as error:
            whole = data.rfind(b"\n", 0, taken) + 1
            self._stored(stamped[: data.count(b"\n", 0, whole)], whole)
            self._cut_back(handle)
            raise StudyError(
                f"cannot write '{self.path}': {error.strerror}. Finished cells are safe; make room, then give the same "
                "command again."
            ) from error
        self._stored(stamped, len(data))

    def _stored(self, stamped: Sequence[tuple[Row, str]], size: int) -> None:
        self._rows.update((row["cell"], row) for row, _ in stamped)
        self._end += size

    def _open(self) -> io.FileIO:
        """For appending, without a buffer: what could not be written must not follow later."""
        try:
            handle = self._handle = self.path.open("ab", buffering=0)
            self._end = os.fstat(handle.fileno()).st_size
        except OSError as error:
            raise StudyError(f"cannot write '{self.path}': {error.strerror}. Choose another with --out.") from error
        return handle

    def _cut_back(self, handle: io.FileIO) -> None:
        """The file without the row that was cut short by a write that failed."""
        self._handle = None
        with contextlib.suppress(OSError):
            os.truncate(self.path, self._end)
        with contextlib.suppress(OSError):
            handle.close()

    def _set_aside(self, damages: Sequence[Damage]) -> None:
        """Whole lines that do not hold are kept in a file of their own."""
        lines = [json.dumps({"line": d.number, "reason": d.reason, "text": d.text}) + "\n" for d in damages]
        try:
            with (self.folder / "results.damaged.jsonl").open("a", encoding="utf-8") as handle:
                handle.writelines(lines)
        except OSError as error:
            raise StudyError(
                f"cannot write in '{self.folder}': {error.strerror}. Choose another with --out."
            ) from error


def claim(folder: Path, study: str, parameters: Sequence[Mapping[str, Any]] = ()) -> None:
    """Makes ``folder`` that of ``study``: its name goes into ``study.json``, and sets of parameters not yet there.

    Raises:
        StudyError: the folder is another study's, or of another version; it cannot be written.
    """
    path = folder / "study.json"
    known = owner(folder)
    if known is not None and known["study"] != study:
        raise StudyError(
            f"'{folder}' holds results of {known['study']!r}, not of {study!r}. Choose another folder with --out."
        )
    if known is not None and known["schema"] != SCHEMA:
        raise StudyError(_other_version(folder, known["schema"]))
    there = [] if known is None else known.get("parameters", [])
    new = [dict(one) for one in parameters if dict(one) not in there]
    if known is None or new:
        sets = {"parameters": [*there, *new]} if there or new else {}
        atomic_write_text(path, json.dumps({"study": study, "schema": SCHEMA, **sets}) + "\n")


def owner(folder: Path) -> dict[str, Any] | None:
    """What ``study.json`` says: study, schema and, of a kind, the sets of parameters run there; None without one.

    Raises:
        StudyError: it is damaged.
    """
    path = folder / "study.json"
    try:
        found = json.loads(read_text(path))
        if isinstance(found["study"], str) and "schema" in found and isinstance(found.get("parameters", []), list):
            return dict(found)
    except FileError as error:
        if not os.path.exists(path):
            return None
        raise StudyError(f"{error}. Remove it if you know whose folder it is, then give the command again.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise StudyError(f"'{path}' is damaged. Remove it if you know whose folder it is, then give the command again.")


def note(folder: Path, **facts: Any) -> None:
    """Adds ``facts`` to the ``study.json`` of a claimed folder: what a page about it says beside its rows."""
    path = folder / "study.json"
    atomic_write_text(path, json.dumps({**json.loads(path.read_text(encoding="utf-8")), **facts}) + "\n")


def load_rows(folder: str | Path) -> list[Row]:
    """Return the newest row of each cell in ``folder``, without damaged lines. Writes nothing.

    Raises:
        StudyError: if the folder holds no results, or those of another version.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with gs.study.ResultStore(folder) as store:
        ...         store.add(gs.study.Cell("mine", "v1", ":e5m10", seed=0, label="fp16").row() | {"error": 0.002})
        ...     print([(row["label"], row["error"]) for row in gs.study.load_rows(folder)])
        [('fp16', 0.002)]
    """
    path = Path(folder) / "results.jsonl"
    if not os.path.isfile(path):
        raise StudyError(f"no results in '{folder}' (looked for results.jsonl). Run the study first.")
    return read_rows(path.parent)[0]


def read_rows(folder: Path) -> tuple[list[Row], list[str]]:
    """The newest intact row of each cell in ``folder``, and a sentence for each damaged line. Empty without a file."""
    rows, damages = _examine(folder / "results.jsonl", keep_cut_line=True)
    return list({row["cell"]: row for row in rows}.values()), [str(damage) for damage in damages]


def to_csv(rows: Sequence[Row]) -> str:
    """``rows`` as CSV with a header; columns in order of first appearance, missing values empty, objects as JSON."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: as_text(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def as_text(value: Any) -> str:
    """``value`` as a field of a table: "" for None, JSON for objects and lists."""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return "" if value is None else str(value)


def _examine(path: Path, *, keep_cut_line: bool = False) -> tuple[list[Row], list[Damage]]:
    """Every intact row of the file in order, and its damaged lines. A cut last line is truncated away, unless kept."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise StudyError(f"cannot read '{path}': {error.strerror}.") from error
    whole, cut = data.rpartition(b"\n")[::2]
    if cut and not keep_cut_line:
        try:
            os.truncate(path, len(data) - len(cut))
        except OSError as error:
            raise StudyError(f"cannot write '{path}': {error.strerror}. Choose another with --out.") from error
    rows: list[Row] = []
    damages: list[Damage] = []
    for number, line in enumerate(whole.decode("utf-8", "replace").split("\n"), start=1):
        if not line.strip():
            continue
        row, reason = _read(line)
        if row is None:
            damages.append(Damage(number, line, reason))
        else:
            if row.get("schema") != SCHEMA:
                raise StudyError(_other_version(path.parent, row.get("schema")))
            rows.append(row)
    return rows, damages


def _read(line: str) -> tuple[Row | None, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None, "not complete JSON"
    if not isinstance(row, dict) or not isinstance(row.get("cell"), str):
        return None, "not a result row"
    body = {name: value for name, value in row.items() if name != "digest"}
    if digest(body) != row.get("digest"):
        return None, "does not match its digest"
    return row, ""


def _other_version(folder: Path, schema: object) -> str:
    return (
        f"'{folder}' holds rows of layout {schema!r}; this version reads and writes {SCHEMA}. Choose another folder "
        "with --out, or read that one with the version that wrote it."
    )


#: Seconds that what was written may lie in the operating system's memory before it is forced to the disk.
SYNC_EVERY = 1.0


class Forcing:
    """Calls ``os.fsync`` in a thread of its own, about every second in which something was written.

    An OSError of it is raised by the next call.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def written(self, descriptor: int) -> None:
        """Something was written to ``descriptor``, which may be closed afterwards.

        Raises:
            OSError: forcing it to the disk failed, now or before.
        """
        self._raise()
        if time.monotonic() - self._last > SYNC_EVERY and (self._thread is None or not self._thread.is_alive()):
            self._last = time.monotonic()
            self._thread = threading.Thread(target=self._force, args=(os.dup(descriptor),), daemon=True)
            self._thread.start()

    def finish(self, descriptor: int) -> None:
        """Forces all that was written, and waits for that.

        Raises:
            OSError: it failed, now or before.
        """
        if self._thread is not None:
            self._thread.join()
        self._raise()
        os.fsync(descriptor)

    def _force(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._error = error
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
