"""What ``table=`` of a library means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..formats.errors import shown
from .errors import table_error
from .mmaemu_table import read_mmaemu
from .table import Table
from .table_files import read_table

__all__ = ["find_table"]


def find_table(table: Any, gpu: str, version: str, workspace: int, sms: int = 0) -> Table:
    """What ``table=`` of a library means: a table, a path, or "mmaemu".

    Raises:
        TableError: for a file that cannot be read, or a table of another library.
    """
    if isinstance(table, str) and table == "mmaemu":
        return read_mmaemu(gpu, version, workspace)
    if not isinstance(table, (Table, str, Path)):
        raise table_error(f"table={shown(table)}", "a path, a Table, or 'mmaemu'", "Leave it out for none.")
    found = table if isinstance(table, Table) else read_table(table)
    found.check_belongs(gpu, version, workspace, sms)
    return found
