"""What is known of one GPU with one version of a library: rows of a JSON file, read once and checked.

Profiles share nothing: that two GPUs agree is a finding, not a rule.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from .errors import LibraryError, library_error
from .evidence import LEVELS

__all__ = [
    "ChainRow",
    "CapRow",
    "FamilyRow",
    "GemmsnRow",
    "GemvRow",
    "MergeRow",
    "OperandRow",
    "Profile",
    "SourceRow",
    "SplitRow",
    "StageRow",
    "UnsplitRow",
    "load",
    "read_profile",
]

FOLDER = Path(__file__).parent / "profiles"
FORMAT = "gemmsim-library-profile/1"
FAMILIES = ("nvjet", "cutlass", "gemmsn", "gemv", "dot", "tiles")


class OperandRow(NamedTuple):
    """Operands and an output that the library takes together; N and K are multiples of ``multiple``, M of its own."""

    a: str
    b: str
    out: str
    evidence: str
    multiple: int = 1
    multiple_of_m: int = 1


class FamilyRow(NamedTuple):
    """The family of one ALGO_ID; "refused" in place of a family has the reason in ``note``.

    operands: formats that the family multiplies. fast: the flag that goes with this algorithm, where it is one alone.
    one_product: the evidence where K = 1, if it is another. slices_seen: the most slices that were compared.
    options_seen: values of CUSTOM_OPTION that were compared; none listed where it decides nothing or has rows.
    """

    algo: int
    family: str
    evidence: str
    operands: tuple[str, ...]
    kernels: str = ""
    note: str = ""
    fast: str = "any"
    one_product: str = ""
    slices_seen: int = 0
    options_seen: tuple[int, ...] = ()


class StageRow(NamedTuple):
    """STAGES_ID: k step of a thread block, and products of one instruction.

    split: the evidence where K is split. algos: the algorithms that have this stage, all where none is listed.
    """

    family: str
    stage: int
    block: int
    step: int
    operands: tuple[str, ...]
    evidence: str
    split: str
    algos: tuple[int, ...] = ()


class ChainRow(NamedTuple):
    """The accumulator of one slice, as text; "{first}" in it stands for the k step of a thread block.

    promoted: the same without fast accumulation, empty where the flag changes nothing.
    """

    family: str
    a: str
    b: str
    step: int
    chain: str
    evidence: str
    promoted: str = ""


class MergeRow(NamedTuple):
    """How slices meet: "compute", "output", "serial" or "pairwise", by the value of a field of the configuration."""

    family: str
    field: str
    value: int
    how: str
    evidence: str


class GemmsnRow(NamedTuple):
    """Threads that share K, each a contiguous part, and terms of a run; run 0: one run."""

    algo: int
    option: int
    threads: int
    run: int
    evidence: str


class GemvRow(NamedTuple):
    """Lanes of a matrix-vector kernel.

    width: adjacent terms of a lane in a tile; below 0: at most its magnitude, a share of the slice. chunk: tiles that
    are summed apart, 0: all. combine: "none", "sequential" or "halves". layout: "interleaved" or "contiguous" lanes.
    only: fields of the configuration or the call that must have a value. inferred_above: K above which the row was not
    compared, 0: none.
    """

    options: tuple[int, ...]
    width: int
    lanes: int
    chunk: int
    combine: str
    evidence: str
    layout: str = "interleaved"
    only_one_slice: bool = False
    only_one_row: bool = False
    inferred_above: int = 0


class CapRow(NamedTuple):
    """Outputs (M * N) above which an option of a family computes otherwise."""

    family: str
    option: int
    outputs: int
    why: str


class UnsplitRow(NamedTuple):
    """The deciding fields of an algorithm that takes these operands with one slice."""

    operands: tuple[str, ...]
    fast: str
    algo: int
    stage: int
    no_workspace: str


class SplitRow(NamedTuple):
    """A layout of slices that a caller may name, and the option that means it."""

    layout: str
    option: int


class SourceRow(NamedTuple):
    """Who measured, what, and how many of how many comparisons were equal (0 of 0: not counted)."""

    by: str
    what: str
    equal: int
    of: int
    where: str
    families: tuple[str, ...] = ()


class Profile(NamedTuple):
    """A profile, its rows by what they are looked up with."""

    gpu: str
    name: str
    capability: str
    sms: int
    version: str
    operands: dict[tuple[str, str, str], OperandRow]
    families: dict[int, FamilyRow]
    stages: dict[tuple[str, int], StageRow]
    chains: dict[tuple[str, str, str, int], ChainRow]
    merges: dict[tuple[str, int], MergeRow]
    merge_fields: dict[str, str]
    gemmsn: dict[tuple[int, int], GemmsnRow]
    gemv: dict[int, GemvRow]
    caps: dict[tuple[str, int], CapRow]
    unsplit: tuple[UnsplitRow, ...]
    splits: dict[str, SplitRow]
    sources: tuple[SourceRow, ...]

    @property
    def key(self) -> str:
        """GPU and version: "h100 13.1.1"."""
        return f"{self.gpu} {self.version}"


Row = TypeVar("Row", bound=NamedTuple)
_LISTS: dict[str, type[Any]] = {
    "operands": OperandRow,
    "families": FamilyRow,
    "stages": StageRow,
    "chains": ChainRow,
    "merges": MergeRow,
    "gemmsn": GemmsnRow,
    "gemv": GemvRow,
    "caps": CapRow,
    "unsplit": UnsplitRow,
    "splits": SplitRow,
    "sources": SourceRow,
}
_WORDS: dict[str, tuple[str, ...]] = {
    "evidence": LEVELS,
    "split": LEVELS,
    "one_product": ("", *LEVELS),
    "no_workspace": LEVELS,
    "how": ("compute", "output", "serial", "sequential", "pairwise"),
    "combine": ("none", "sequential", "halves"),
    "layout": ("interleaved", "contiguous", "serial", "pairwise"),
    "fast": ("any", "yes", "no"),
    "field": ("REDUCTION_SCHEME", "CUSTOM_OPTION"),
}
_HEAD = {"format": str, "gpu": str, "name": str, "capability": str, "sms": int, "version": str}


@lru_cache(maxsize=1)
def load() -> dict[tuple[str, str], Profile]:
    """Every profile by GPU and version, read from this package's folder once.

    Raises:
        LibraryError: for a file that does not fit the schema; it names the file and the row.
    """
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        one = read_profile(path.name, path.read_text(encoding="utf-8"))
        found[one.gpu, one.version] = one
    return found


def read_profile(file: str, text: str) -> Profile:
    """The profile in ``text``; ``file`` is what errors call it.

    Raises:
        LibraryError: for text that is no JSON of this schema; it names the file and the row.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(file, f"not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise _wrong(file, f"a {type(data).__name__}, not an object")
    extra = sorted(data.keys() - _HEAD.keys() - _LISTS.keys())
    missing = sorted((_HEAD.keys() | _LISTS.keys()) - data.keys())
    if extra or missing:
        raise _wrong(file, f"unknown {extra}, missing {missing}")
    for name, kind in _HEAD.items():
        if type(data[name]) is not kind:
            raise _wrong(file, f"{name}: {data[name]!r}, not of type {kind.__name__}")
    if data["format"] != FORMAT:
        raise _wrong(file, f"format {data['format']!r}, not {FORMAT!r}")
    rows = {name: _rows(file, name, kind, data[name]) for name, kind in _LISTS.items()}
    return _profile(file, data, rows)


def _wrong(file: str, what: str) -> LibraryError:
    return library_error(f"{file}: {what}", "a profile as docs/reference/libraries.md has it", "Correct the file.")


def _rows(file: str, name: str, kind: type[Any], data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise _wrong(file, f"{name}: a {type(data).__name__}, not a list")
    hints = {key: str(hint) for key, hint in get_type_hints(kind).items()}
    return [_row(f"{name}[{index}]", file, kind, hints, row) for index, row in enumerate(data)]


def _row(place: str, file: str, kind: type[Any], hints: dict[str, str], row: Any) -> Any:
    if not isinstance(row, dict):
        raise _wrong(file, f"{place}: a {type(row).__name__}, not an object")
    unknown = sorted(row.keys() - hints.keys())
    missing = [key for key in hints if key not in row and key not in kind._field_defaults]
    if unknown or missing:
        raise _wrong(file, f"{place}: unknown {unknown}, missing {missing}")
    values = {key: _value(f"{place}.{key}", file, hints[key], value) for key, value in row.items()}
    for key, allowed in _WORDS.items():
        if key in values and values[key] not in allowed:
            raise _wrong(file, f"{place}.{key}: {values[key]!r}, none of {', '.join(filter(None, allowed))}")
    family = values.get("family")
    if family is not None and family not in (*FAMILIES, "refused"):
        raise _wrong(file, f"{place}.family: {family!r}, none of {', '.join(FAMILIES)}, refused")
    return kind(**values)


def _value(place: str, file: str, hint: str, value: Any) -> Any:
    """A value of the type that the row's class says."""
    if hint.startswith("tuple"):
        inner = int if "int" in hint else str
        if not isinstance(value, list) or any(type(one) is not inner for one in value):
            raise _wrong(file, f"{place}: {value!r}, not a list of {inner.__name__}")
        return tuple(value)
    kinds = {"<class 'int'>": int, "<class 'str'>": str, "<class 'bool'>": bool}
    if type(value) is not kinds[hint]:
        raise _wrong(file, f"{place}: {value!r}, not of type {kinds[hint].__name__}")
    return value


def _profile(file: str, data: dict[str, Any], rows: dict[str, list[Any]]) -> Profile:
    return Profile(
        data["gpu"],
        data["name"],
        data["capability"],
        data["sms"],
        data["version"],
        _by(file, "operands", rows, ("a", "b", "out")),
        {row.algo: row for row in _by(file, "families", rows, ("algo",)).values()},
        _by(file, "stages", rows, ("family", "stage")),
        _by(file, "chains", rows, ("family", "a", "b", "step")),
        _by(file, "merges", rows, ("family", "value")),
        {row.family: row.field for row in rows["merges"]},
        _by(file, "gemmsn", rows, ("algo", "option")),
        _by_option(file, rows["gemv"]),
        _by(file, "caps", rows, ("family", "option")),
        tuple(rows["unsplit"]),
        {row.layout: row for row in _by(file, "splits", rows, ("layout",)).values()},
        tuple(rows["sources"]),
    )


def _by(file: str, name: str, rows: dict[str, list[Any]], keys: tuple[str, ...]) -> dict[Any, Any]:
    """Rows by the values of ``keys``; two rows of one key are an error."""
    found: dict[Any, Any] = {}
    for index, row in enumerate(rows[name]):
        key = tuple(getattr(row, one) for one in keys)
        if key in found:
            raise _wrong(file, f"{name}[{index}]: a second row of {key}")
        found[key] = row
    return found


def _by_option(file: str, rows: list[GemvRow]) -> dict[int, GemvRow]:
    found: dict[int, GemvRow] = {}
    for index, row in enumerate(rows):
        for option in row.options:
            if option in found:
                raise _wrong(file, f"gemv[{index}]: a second row of option {option}")
            found[option] = row
    return found
