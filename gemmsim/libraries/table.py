"""Recorded configurations: which algorithm the library's heuristic chose for each call, as sorted columns.

``table_files`` reads and writes them.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .call import Call
from .configuration import Config
from .errors import TableError, table_error
from .versions import is_prefix

__all__ = ["Bound", "Header", "Table", "TableRow", "key_of", "make_table"]

#: Formats that a table's keys may have, by their code there.
FORMATS = ("fp16", "bf16", "fp32", "e4m3", "e5m2")
_CODES = {name: code for code, name in enumerate(FORMATS)}
#: What stands for a field that was not recorded; no field of the library has this value.
NOT_GIVEN = -(2**31)
LARGEST = 2**31 - 1


class Header(NamedTuple):
    """The facts that all rows of a table share. sms 0: not recorded.

    Example:
        >>> gs.libraries.Header("h100", "13.1.1", 32 << 20).caller
        'cublasLtMatmul'
    """

    gpu: str
    version: str
    workspace: int
    sms: int = 0
    layout: str = "nn"
    caller: str = "cublasLtMatmul"


class TableRow(NamedTuple):
    """One call and the configuration that the heuristic chose for it.

    Example:
        >>> call = gs.libraries.Call(64, 64, 8192, "fp16", "fp16", "fp16", False)
        >>> row = gs.libraries.TableRow(call, gs.libraries.Config(66, STAGES_ID=35))
        >>> row.call.K, row.config.STAGES_ID
        (8192, 35)
    """

    call: Call
    config: Config


class Bound(NamedTuple):
    """Products of these formats with M * N above ``outputs`` are not split, for K up to each of ``upto``.

    ``outputs[i]`` holds for K above ``upto[i - 1]`` (for the first from ``lowest`` on) and at most ``upto[i]``.
    """

    a: str
    b: str
    out: str
    fast: bool
    lowest: int
    upto: tuple[int, ...]
    outputs: tuple[int, ...]


class Table:
    """Configurations by call: comparable and hashable, with ``len`` and iteration over ``TableRow``.

    ``read_table`` reads one from a file, ``make_table`` makes one from rows.

    Example:
        >>> header = gs.libraries.Header("h100", "13.1.1", 32 << 20)
        >>> call = gs.libraries.Call(64, 64, 8192, "fp16", "fp16", "fp16", False)
        >>> gs.libraries.make_table(header, [(call, gs.libraries.Config(66, STAGES_ID=35))]).find(call).ALGO_ID
        66
    """

    __slots__ = ("_bounds", "_configs", "_digest", "_first", "_second", "_views", "header", "name")
    source = "table"

    def __init__(
        self,
        header: Header,
        first: np.ndarray[Any, Any],
        second: np.ndarray[Any, Any],
        configs: np.ndarray[Any, Any],
        name: str = "a table",
        bounds: Sequence[Bound] = (),
    ) -> None:
        self.header, self.name = header, name
        self._first, self._second, self._configs = first, second, configs
        self._views = first.data, second.data  # whose elements are Python's integers
        self._bounds = {(one.a, one.b, one.out, one.fast): one for one in bounds}
        digest = hashlib.sha256(repr((header, sorted(self._bounds.items()))).encode())
        for column in (first, second, configs):
            digest.update(np.ascontiguousarray(column).tobytes())
        self._digest = digest.hexdigest()

    def find(self, call: Call) -> Config | None:
        """The configuration of this call; None without a row."""
        key = key_of(call)
        if key is None:
            return None
        firsts, seconds = self._views
        low = bisect_left(firsts, key[0])
        if low == len(firsts) or firsts[low] != key[0]:
            return None
        high = bisect_right(firsts, key[0], low)
        at = bisect_left(seconds, key[1], low, high)
        if at == high or seconds[at] != key[1]:
            return None
        return _config(self._configs[at].tolist())

    def splits_nothing(self, call: Call) -> bool:
        """Whether a recorded bound says that a call of this size is not split."""
        bound = self._bounds.get((call.a, call.b, call.out, call.fast))
        if bound is None or call.K < bound.lowest:
            return False
        return next((call.M * call.N > n for k, n in zip(bound.upto, bound.outputs, strict=True) if call.K <= k), False)

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[TableRow]:
        for first, second, config in zip(
            self._first.tolist(), self._second.tolist(), self._configs.tolist(), strict=True
        ):
            yield TableRow(_call(first, second), _config(config))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __reduce__(self) -> tuple[Any, ...]:
        bounds = tuple(self._bounds.values())
        return Table, (self.header, self._first, self._second, self._configs, self.name, bounds)

    def __repr__(self) -> str:
        head = self.header
        return f"<Table {self.name}: {len(self)} calls on {head.gpu} {head.version}, workspace {head.workspace}>"

    def check_belongs(self, gpu: str, version: str, workspace: int, sms: int = 0) -> None:
        """Does nothing for the library that these configurations belong to; ``sms`` 0: not known.

        Raises:
            TableError: where the table was recorded for another GPU, number of SMs, version or workspace.
        """
        head = self.header
        same = is_prefix(version, head.version) or is_prefix(head.version, version)
        for what, found, wanted, right in (
            ("GPU", head.gpu, gpu, head.gpu == gpu),
            ("version", head.version, version, same),
            ("workspace", head.workspace, workspace, head.workspace == workspace),
            ("a number of SMs of", head.sms, sms, 0 in (head.sms, sms) or head.sms == sms),
        ):
            if not right:
                raise table_error(
                    f"{self.name}: recorded for {what} {found}", f"{what} {wanted}", "Give the table of this library."
                )


def key_of(call: Call) -> tuple[int, int] | None:
    """A call as two integers by which rows are sorted; None for formats that tables do not have."""
    try:
        formats = (_CODES[call.a] * 8 + _CODES[call.b]) * 8 + _CODES[call.out]
    except KeyError:
        return None
    return call.M << 32 | call.N, call.K << 10 | formats << 1 | call.fast


def _call(first: int, second: int) -> Call:
    formats, fast = second >> 1 & 511, bool(second & 1)
    a, b, out = (FORMATS[formats >> shift & 7] for shift in (6, 3, 0))
    return Call(first >> 32, first & 0xFFFFFFFF, second >> 10, a, b, out, fast)


def _config(fields: list[int]) -> Config:
    return Config._make(None if field == NOT_GIVEN else field for field in fields)


def make_table(header: Header, rows: Sequence[tuple[Call, Config]], name: str = "a table") -> Table:
    """The table of these rows. A call may occur several times with the same configuration.

    Raises:
        TableError: for a call with two configurations, and for formats that tables do not have.

    Example:
        >>> call = gs.libraries.Call(64, 64, 8192, "fp16", "fp16", "fp16", False)
        >>> rows = [(call, gs.libraries.Config(66, STAGES_ID=35))]
        >>> gs.libraries.make_table(gs.libraries.Header("h100", "13.1.1", 32 << 20), rows)
        <Table a table: 1 calls on h100 13.1.1, workspace 33554432>
    """
    known: dict[tuple[int, int], Config] = {}
    for number, (call, config) in enumerate(rows, 1):
        key = key_of(call)
        if key is None:
            raise table_error(f"{name}, row {number}: {call}", f"formats {', '.join(FORMATS)}", "Leave the row out.")
        if known.setdefault(key, config) != config:
            raise different(f"{name}, row {number}", call, known[key], config)
    keys = sorted(known)
    columns = np.array(keys, dtype=np.uint64).reshape(len(keys), 2)
    configs = [[NOT_GIVEN if field is None else field for field in known[key]] for key in keys]
    return Table(header, columns[:, 0].copy(), columns[:, 1].copy(), as_configs(configs), name)


def as_configs(rows: list[list[int]]) -> np.ndarray[Any, Any]:
    """Configurations as an array of nine columns."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(Config._fields)).astype(np.int32)


def different(place: str, call: Call, one: Config, other: Config) -> TableError:
    """The error of a call with two configurations."""
    return table_error(
        f"{place}: {call} with {other}, elsewhere with {one}",
        "one configuration per call",
        "Two recordings were merged: record again, or keep one of them.",
    )


def digest_of(lines: Sequence[str]) -> str:
    """SHA-256 of rows as they stand in a file of JSON lines."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def row_line(call: Call, config: Config) -> str:
    """One row as JSON."""
    fields = {"M": call.M, "N": call.N, "K": call.K, "a": call.a, "b": call.b, "out": call.out, "fast": call.fast}
    return json.dumps({**fields, "config": list(config)})
