"""Tables that are written while they are recorded: whole lines, appended, also by several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from .call import Call
from .configuration import Config
from .errors import table_error
from .table import Header, Table, row_line
from .table_files import header_line, read_table

__all__ = ["append_rows"]


def append_rows(path: Path, header: Header, calls: Iterable[Call], ask: Callable[[Call], Config | None]) -> int:
    """Asks for the calls that the table does not have and appends them; how many rows are new.

    A last line that was cut off is taken away first.

    Raises:
        TableError: for a file of another library or kind, and a name of another kind.
    """
    if path.suffix in (".gz", ".npz"):
        raise table_error(f"{path.name}: rows cannot be appended", "JSON lines", "Record to .jsonl, then write_table.")
    known = _started(path, header)
    new = 0
    asked: set[Call] = set()
    target = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        for call in calls:
            if call in asked or known.find(call) is not None:
                continue
            asked.add(call)
            config = ask(call)
            if config is not None:
                os.write(target, f"{row_line(call, config)}\n".encode())
                new += 1
    finally:
        os.close(target)
    return new


def _started(path: Path, header: Header) -> Table:
    """The table in the file, which is made with its header where it is not there.

    Raises:
        TableError: for a table of another library.
    """
    if not path.exists():
        own = path.with_name(f".{path.name}.{os.getpid()}")
        own.write_text(f"{header_line(header)}\n", encoding="utf-8")
        try:
            os.link(own, path)
        except FileExistsError:  # another process was faster
            pass
        finally:
            own.unlink()
    raw = path.read_bytes()
    if raw and not raw.endswith(b"\n"):
        os.truncate(path, raw.rfind(b"\n") + 1)
    table = read_table(path)
    table.check_belongs(header.gpu, header.version, header.workspace, header.sms)
    return table
