"""Tables as files: JSON lines, gzipped by name, or columns in .npz for millions of rows."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.errors import shown
from .call import Call
from .configuration import Config
from .errors import TableError, table_error
from .table import (
    FORMATS,
    LARGEST,
    NOT_GIVEN,
    Header,
    Table,
    TableRow,
    as_configs,
    different,
    digest_of,
    make_table,
    row_line,
)
from .versions import check_version

__all__ = ["FORMAT", "header_line", "read_table", "write_table"]

FORMAT = "gemmsim-cublaslt/1"
_HEADER = {"format": str, "gpu": str, "sms": int, "version": str, "workspace": int, "layout": str, "caller": str}
_OPTIONAL = {"rows": int, "sha256": str}
_ROW = {"M": int, "N": int, "K": int, "a": str, "b": str, "out": str, "fast": bool, "config": list}
_COLUMNS = ("M", "N", "K", "a", "b", "out", "fast", "config")


def read_table(path: str | Path) -> Table:
    """The table in a file: JSON lines, gzipped where the name ends in .gz, or .npz.

    A count and a checksum of the rows in the header are verified. Without them a file that was truncated between two
    rows reads as a shorter table.

    Raises:
        TableError: for a file that cannot be read or was truncated, a line that is not a row (the message names the
            line), and a call with two configurations.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     call = gs.libraries.Call(64, 64, 8192, "fp16", "fp16", "fp16", False)
        ...     rows = [(call, gs.libraries.Config(66, STAGES_ID=35))]
        ...     gs.libraries.write_table(f"{folder}/one.jsonl", gs.libraries.Header("h100", "13.1.1", 32 << 20), rows)
        ...     print(len(gs.libraries.read_table(f"{folder}/one.jsonl")))
        1
    """
    path = Path(path)
    name = path.name
    try:
        raw = path.read_bytes()
        if name.endswith(".npz"):
            return _from_columns(raw, name)
        text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode("utf-8")
    except TableError:
        raise
    except OSError as error:
        raise _damaged(name, error.strerror or str(error)) from None
    except (EOFError, zlib.error, UnicodeDecodeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _damaged(name, str(error) or type(error).__name__) from None
    return _from_lines(text, name)


def write_table(path: str | Path, header: Header, rows: Iterable[tuple[Call, Config]]) -> None:
    """Writes a table, in the form that the file name says.

    The header gets the number of rows and the checksum of lines.

    Raises:
        TableError: for rows that are not a table: a call with two configurations, a format that tables do not have.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gs.libraries.write_table(f"{folder}/none.jsonl", gs.libraries.Header("h100", "13.1.1", 32 << 20), [])
        ...     print(gs.libraries.read_table(f"{folder}/none.jsonl"))
        <Table none.jsonl: 0 calls on h100 13.1.1, workspace 33554432>
    """
    path = Path(path)
    table = make_table(header, list(rows), path.name)
    kept = list(table)
    if path.name.endswith(".npz"):
        path.write_bytes(_as_columns(header, kept))
        return
    lines = [row_line(row.call, row.config) for row in kept]
    text = "".join(f"{line}\n" for line in (header_line(header, len(lines), digest_of(lines)), *lines))
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.name.endswith(".gz") else text.encode())


def header_line(header: Header, rows: int | None = None, digest: str | None = None) -> str:
    """The header as JSON, with the count and the digest of the rows where they are known."""
    fields: dict[str, Any] = {"format": FORMAT, "gpu": header.gpu, "sms": header.sms, "version": header.version}
    fields |= {"workspace": header.workspace, "layout": header.layout, "caller": header.caller}
    fields |= {} if rows is None else {"rows": rows}
    return json.dumps(fields | ({} if digest is None else {"sha256": digest}))


def _damaged(name: str, what: str) -> TableError:
    return table_error(f"{name}: {what}", "a whole table", "Record or copy the file again.")


def _from_lines(text: str, name: str) -> Table:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise _damaged(name, "an empty file")
    header, rows, digest = _header(lines[0], name)
    made = [_row(line, f"{name}, line {number}") for number, line in enumerate(lines[1:], 2)]
    if rows is not None and rows != len(made):
        raise _damaged(name, f"{len(made)} rows, by its header {rows}")
    if digest is not None and digest != digest_of(lines[1:]):
        raise _damaged(name, "the rows do not match the checksum in its header")
    known: dict[Call, Config] = {}
    for number, row in enumerate(made, 2):
        if known.setdefault(row.call, row.config) != row.config:
            raise different(f"{name}, line {number}", row.call, known[row.call], row.config)
    return make_table(header, made, name)


def _object(line: str, place: str, needed: dict[str, type], optional: dict[str, type]) -> dict[str, Any]:
    """A line as an object with these fields of these types."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise table_error(f"{place}: not valid JSON: {error}", "one object per line", "It may be incomplete.") from None
    if not isinstance(found, dict):
        raise table_error(f"{place}: a {type(found).__name__}", "one object per line", "Record the table again.")
    unknown = sorted(found.keys() - needed.keys() - optional.keys())
    missing = sorted(needed.keys() - found.keys())
    wrong = [key for key, kind in (needed | optional).items() if key in found and type(found[key]) is not kind]
    if unknown or missing or wrong:
        what = ", ".join(
            f"{word} {', '.join(names)}"
            for word, names in (("unknown", unknown), ("missing", missing), ("of another type", wrong))
            if names
        )
        raise table_error(f"{place}: {what}", f"fields {', '.join(needed)}", "Record the table again.")
    return found


def _header(line: str, name: str) -> tuple[Header, int | None, str | None]:
    found = _object(line, f"{name}, line 1", _HEADER, _OPTIONAL)
    _check_header(found, name)
    header = Header(*(found[key] for key in ("gpu", "version", "workspace", "sms", "layout", "caller")))
    return header, found.get("rows"), found.get("sha256")


def _check_header(found: dict[str, Any], name: str) -> None:
    """TableError for a header of another kind of file."""
    if found["format"] != FORMAT:
        raise table_error(f"{name}: format {shown(found['format'])}", FORMAT, "Write it with this version of gemmsim.")
    try:
        check_version("version", found["version"])
    except ValueError as error:
        raise table_error(f"{name}: {error}", "a version", "Correct the header.") from None
    if found["workspace"] < 0 or found["sms"] < 0:
        raise table_error(f"{name}: a negative workspace or number of SMs", "0 or more", "Correct the header.")


def _row(line: str, place: str) -> TableRow:
    found = _object(line, place, _ROW, {})
    fields = found["config"]
    whole = len(fields) == len(Config._fields) and all(
        (value is None and index > 0) or (type(value) is int and NOT_GIVEN < value <= LARGEST)
        for index, value in enumerate(fields)
    )
    if not whole:
        raise table_error(f"{place}: config {shown(fields)}", "nine integers", "Record the table again.")
    for key in ("M", "N", "K"):
        if not 1 <= found[key] <= LARGEST:
            raise table_error(f"{place}: {key} = {found[key]}", "1 to 2147483647", "Record the table again.")
    for key in ("a", "b", "out"):
        if found[key] not in FORMATS:
            raise table_error(f"{place}: {key} = {shown(found[key])}", ", ".join(FORMATS), "Record the table again.")
    return TableRow(Call(*(found[key] for key in ("M", "N", "K", "a", "b", "out", "fast"))), Config(*fields))


def _as_columns(header: Header, rows: list[TableRow]) -> bytes:
    columns: dict[str, Any] = {"header": np.array(header_line(header, len(rows)))}
    for key, kind in (("M", np.int32), ("N", np.int32), ("K", np.int32), ("fast", np.bool_)):
        columns[key] = np.array([getattr(row.call, key) for row in rows], dtype=kind)
    for key in ("a", "b", "out"):
        columns[key] = np.array([FORMATS.index(getattr(row.call, key)) for row in rows], dtype=np.uint8)
    columns["config"] = as_configs([[NOT_GIVEN if v is None else v for v in row.config] for row in rows])
    out = io.BytesIO()
    np.savez_compressed(out, **columns)
    return out.getvalue()


def _from_columns(raw: bytes, name: str) -> Table:
    with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
        missing = [key for key in ("header", *_COLUMNS) if key not in stored]
        if missing:
            raise _damaged(name, f"no column {', '.join(missing)}")
        header, rows, _ = _header(str(stored["header"]), name)
        columns = {key: stored[key] for key in _COLUMNS}
    count = len(columns["M"])
    shapes = [column.shape[:1] == (count,) for column in columns.values()]
    if not all(shapes) or columns["config"].shape != (count, len(Config._fields)) or rows not in (None, count):
        raise _damaged(name, "columns of different lengths, or with a different number of rows than its header says")
    for key in _COLUMNS:
        if columns[key].dtype.kind not in "iub":
            raise _damaged(name, f"column {key} does not hold integers")
    return columns_table(header, columns, name)


def columns_table(header: Header, columns: dict[str, Any], name: str, bounds: Any = ()) -> Table:
    """The table of columns as ``write_table`` has them; equal rows count once.

    Raises:
        TableError: for sizes and formats that tables do not have, and a call with two configurations.
    """
    wide = {key: columns[key].astype(np.int64) for key in _COLUMNS}
    for key in ("M", "N", "K"):
        if wide[key].size and not 1 <= wide[key].min() <= wide[key].max() <= LARGEST:
            raise _damaged(name, f"{key} outside 1 to {LARGEST}")
    for key in ("a", "b", "out"):
        if wide[key].size and not 0 <= wide[key].min() <= wide[key].max() < len(FORMATS):
            raise _damaged(name, f"column {key} does not name a format")
    formats = (wide["a"] * 8 + wide["b"]) * 8 + wide["out"]
    first = (wide["M"] << 32 | wide["N"]).astype(np.uint64)
    second = (wide["K"] << 10 | formats << 1 | (wide["fast"] != 0)).astype(np.uint64)
    configs = wide["config"].astype(np.int32)
    order = np.lexsort((second, first))
    first, second, configs = first[order], second[order], configs[order]
    same = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    clash = same & (configs[1:] != configs[:-1]).any(axis=1)
    table = Table(header, first, second, configs, name, bounds)
    if clash.any():
        at = slice(int(clash.argmax()), int(clash.argmax()) + 2)
        rows = list(Table(header, first[at].copy(), second[at].copy(), configs[at], name))
        raise different(name, rows[0].call, rows[0].config, rows[1].config)
    if same.any():
        kept = np.concatenate(([True], ~same))
        table = Table(header, first[kept], second[kept], configs[kept], name, bounds)
    return table
