"""The configurations that mmaemu 0.1.0 ships for an H100 PCIe and an RTX 4060, read from its data files.

The package is not imported. Its tables are recordings of cuBLASLt 12.8.3.14 by Xun Ding (Apache-2.0).
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .errors import TableError, table_error
from .table import FORMATS, NOT_GIVEN, Bound, Header, Table
from .table_files import columns_table
from .versions import is_prefix

__all__ = ["read_mmaemu"]

_FILES = {"h100-pcie": "heur_h100pcie_lt12.8.3.14", "rtx4060": "heur_rtx4060_lt12.8.3.14"}
_VERSION = "12.8.3.14"
_FORMAT = "mmaemu-splitk-table/1"
_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
#: Where one bound holds for all K: how far above the largest split M * N that was seen nothing is taken to be split.
_MARGIN = 2


@lru_cache(maxsize=4)
def read_mmaemu(gpu: str, version: str, workspace: int) -> Table:
    """mmaemu's table of this GPU and workspace, with its bounds above which nothing is split.

    Raises:
        TableError: where the package is not installed, has no such table, or its files are not those of version 0.1.0.
    """
    if gpu not in _FILES or not (is_prefix(version, _VERSION) or is_prefix(_VERSION, version)):
        allowed = ", ".join(f"{name} {_VERSION}" for name in _FILES)
        raise table_error(f"table='mmaemu' for {gpu} {version}", allowed, "Give the path of another table.")
    folder = _folder()
    try:
        facts = json.loads((folder / f"{_FILES[gpu]}.json").read_text(encoding="utf-8"))
        raw = (folder / f"{_FILES[gpu]}.npz").read_bytes()
        if facts["format"] != _FORMAT or facts["npz_sha256"] != hashlib.sha256(raw).hexdigest():
            raise _damaged(f"{_FILES[gpu]} is not the file that its description names")
        with np.load(folder / f"{_FILES[gpu]}.npz", allow_pickle=False) as stored:
            columns = {key: stored[key] for key in stored.files}
        return _table(gpu, facts, columns, workspace)
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise _damaged(f"{type(error).__name__}: {error}") from None


def _damaged(what: str) -> TableError:
    return table_error(f"mmaemu's tables: {what}", "those of mmaemu 0.1.0", "pip install mmaemu==0.1.0")


def _folder() -> Path:
    """Where mmaemu's data files are.

    Raises:
        TableError: where it is not installed.
    """
    found = find_spec("mmaemu")
    if found is None or not found.submodule_search_locations:
        raise table_error("table='mmaemu', which is not installed", "an installed mmaemu", "pip install mmaemu")
    return Path(next(iter(found.submodule_search_locations))) / "platform" / "data"


def _table(gpu: str, facts: dict[str, Any], stored: dict[str, Any], workspace: int) -> Table:
    spaces = facts["codes"]["ws"]
    if workspace not in spaces:
        allowed = ", ".join(str(space) for space in spaces)
        raise table_error(f"table='mmaemu' with a workspace of {workspace} bytes", allowed, "Give one of these.")
    chosen = stored["ws"] == spaces.index(workspace)
    rows = {key: column[chosen] for key, column in stored.items()}
    columns = {key: rows[key] for key in ("M", "N", "K", "fast")}
    for key, name in (("a", "fa"), ("b", "fb")):
        columns[key] = _formats(facts["codes"]["fa/fb"])[rows[name]]
    columns["out"] = _formats(facts["codes"]["out"])[rows["out"]]
    nothing = np.full(len(columns["M"]), NOT_GIVEN, dtype=np.int64)
    recorded = ("algo", "tile", "splitK", "reduction", "swizzle", "custom", "stages")
    columns["config"] = np.stack([*(rows[key].astype(np.int64) for key in recorded), nothing, nothing], axis=1)
    device = facts["profile_device"]
    header = Header(gpu, device["cublaslt"], workspace, device["sm_count"], "tn")
    return columns_table(header, columns, "mmaemu", tuple(_bounds(facts, workspace)))


def _formats(codes: dict[str, str]) -> Any:
    """Our code of a format by mmaemu's."""
    names = [_NAMES.get(codes[str(code)], codes[str(code)]) for code in range(len(codes))]
    return np.array([FORMATS.index(name) for name in names])


def _bounds(facts: dict[str, Any], workspace: int) -> Any:
    """Bounds by K where the file has them, else one for all K from the largest split of each setting."""
    envelope = facts.get("envelope")
    for row in facts["settings"] if envelope is None else envelope["bounds"]:
        if row["ws"] != workspace:
            continue
        formats = row["fmt_a"], row["fmt_b"], _NAMES[row["out"]], row["fast"]
        if envelope is not None:
            yield Bound(*formats, envelope["K_min"], tuple(envelope["K_grid"]), tuple(row["B"]))
        elif row["max_split_MN"] is not None:
            yield Bound(*formats, 1, (2**31 - 1,), (_MARGIN * row["max_split_MN"],))
