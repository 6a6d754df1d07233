"""One page for people: verdicts, findings, pictures and numbers of studies, read from their folders alone.

The page is one file. It loads nothing: pictures stand in it as SVG, and its policy (a meta element) forbids the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gemmsim._files import read_text

from .cells import Row
from .checks import SOURCES, counted_sources, source_words, today_source
from .errors import StudyError
from .files import atomic_write_text, make_folder
from .glossary import COLUMNS, SYMBOLS
from .inline_svg import inline_svg
from .store import as_text, load_rows

__all__ = ["report"]

#: Rows of a study that its table shows; all are in results.jsonl.
MOST_ROWS = 500
_VERSIONS = ("library", "revision", "torch", "numpy", "python", "machine", "device")
_ORDER = {"fail": 0, "unfinished": 1, "pass": 2}
_SOURCE_ORDER: dict[str, int] = {source: place for place, source in enumerate(SOURCES)}


def report(folders: Iterable[str | Path], out: str | Path) -> Path:
    """Write ``out``, an HTML page of the studies in ``folders``, completely or not at all, and return its path.

    A folder without results but with subfolders that have some (as ``gemmsim study run all`` leaves) stands for
    those. Of several folders, one of a study without rows (skipped because a model is missing) is skipped. The
    function reads only study.json, results.jsonl, verdicts.json and plot.svg; the studies themselves need not be
    known here.

    Raises:
        StudyError: for no folder, one without results, files of another version or damaged files, an ``out`` that
            cannot be written, no Jinja2.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     summary = gs.study.run("swamping", folder, limit=1)
        ...     print(gs.study.report([folder], f"{folder}/report.html").name)
        report.html
    """
    named = [Path(folder) for folder in folders]
    begun = [folder for folder in named if not _is_empty_study(folder)] or named
    found = [inside for folder in begun for inside in _with_results(folder)]
    if not found:
        raise StudyError("no folder given. Name one or more that 'gemmsim study run ... --out DIR' wrote.")
    studies = [_study(folder, f"s{number}-") for number, folder in enumerate(dict.fromkeys(found), start=1)]
    checks = [{**check, "study": study} for study in studies for check in study["checks"]]
    checks.sort(key=lambda check: (_ORDER.get(check["verdict"], 0), _SOURCE_ORDER.get(check["origin"], 0)))
    counts = {word: sum(check["verdict"] == word for check in checks) for word in _ORDER}
    page = _template().render(
        studies=studies, checks=checks, counts=counts, symbols=SYMBOLS, sources=_by_source(checks), told=counted_sources
    )
    path = Path(out)
    if os.path.isdir(path):
        raise StudyError(f"'{path}' is a folder; --out takes the file of the page, such as {path}/report.html.")
    make_folder(path.parent)
    try:
        atomic_write_text(path, page)
    except OSError as error:
        raise StudyError(f"cannot write '{path}': {error.strerror}. Choose another with --out.") from error
    return path


def _is_empty_study(folder: Path) -> bool:
    return os.path.isfile(folder / "study.json") and not os.path.isfile(folder / "results.jsonl")


def _with_results(folder: Path) -> list[Path]:
    if not os.path.isfile(folder / "results.jsonl") and os.path.isdir(folder):
        inside = sorted(path.parent for path in folder.glob("*/results.jsonl"))
        if inside:
            return inside
    load_rows(folder)
    return [folder]


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise StudyError("the report needs Jinja2. Install it with: pip install 'gemmsim[study]'.") from error
    text = Path(__file__).with_name("report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        text
    )


def _study(folder: Path, prefix: str) -> dict[str, Any]:
    """What the page says about one folder; ids begin with ``prefix``."""
    rows = load_rows(folder)
    if not rows:
        raise StudyError(f"'{folder}' holds no intact row. Run the study again: finished cells are computed anew.")
    about = _json(folder / "study.json", dict, {})
    checks = _json(folder / "verdicts.json", list, [])
    name = str(about.get("study") or rows[0]["study"])
    title = str(about.get("title") or name)
    finding = str(about.get("finding") or "")
    axes, measured = _columns(rows)
    asked = [*about.get("metrics", ()), *(check.get("metric") for check in checks)]
    shown = [column for column in measured if column in asked] or measured
    varying = [column for column in axes if _varies(rows, column)]
    return {
        "id": prefix,
        "name": name,
        "title": title,
        "finding": finding,
        "folder": folder.name or str(folder),
        "command": about.get("command", ""),
        "checks": [_check(check) for check in checks],
        "picture": _picture(folder / "plot.svg", prefix, title, finding or f"Results of the study {name}."),
        "constant": [(c, _text(rows[0][c])) for c in axes if c not in varying and rows[0][c] != ""],
        "columns": [*((c, False) for c in varying), *((c, c not in shown) for c in measured)],
        "rows": rows[:MOST_ROWS],
        "count": len(rows),
        "text": _text,
        "key": _sort_key,
        "words": [(c, COLUMNS[c]) for c in dict.fromkeys([*axes, *shown]) if c in COLUMNS],
        "further": [(c, COLUMNS[c]) for c in measured if c in COLUMNS and c not in shown],
        "versions": [(c, ", ".join(_distinct(rows, c))) for c in _VERSIONS if any(_distinct(rows, c))],
        "finished": sorted(_time(row["finished_at"]) for row in rows if row.get("finished_at")),
    }  # fmt: skip


def _columns(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Columns that say what was measured, and those that say what came out, as the layout of rows has them."""
    axes: dict[str, None] = {"label": None, "spec": None, "seed": None}
    measured: dict[str, None] = {}
    for row in rows:
        names = list(row)
        of_cell = slice(
            names.index("macs") + 1 if "macs" in names else 0, names.index("kind") if "kind" in names else 0
        )
        of_result = slice(
            names.index("spec_json") + 1 if "spec_json" in names else len(names),
            names.index("elapsed_s") + 1 if "elapsed_s" in names else len(names),
        )
        axes.update(dict.fromkeys(names[of_cell]))
        measured.update(dict.fromkeys(names[of_result]))
    has = {name for row in rows for name, value in row.items() if value is not None}
    return [name for name in axes if name in has], [name for name in measured if name in has and name not in axes]


def _varies(rows: Sequence[Row], column: str) -> bool:
    return any(row.get(column) != rows[0].get(column) for row in rows)


def _distinct(rows: Sequence[Row], column: str) -> list[str]:
    return list(dict.fromkeys(str(row[column]) for row in rows if row.get(column) is not None))


def _time(stamp: Any) -> str:
    """A time of records.py to the minute."""
    day, _, clock = str(stamp).partition("T")
    return f"{day} {clock[:5]}{' UTC' if clock.endswith('+00:00') else ''}"


def _check(check: dict[str, Any]) -> dict[str, str]:
    """A check as the page shows it: ``origin`` is its source alone, ``source`` also tells how its interval was made."""
    names = ("check", "verdict", "found", "published", "place")
    origin, derived = today_source(str(check.get("source") or ""), bool(check.get("derived")))
    source = source_words(origin, derived) if origin else ""
    return {**{name: str(check.get(name) or "") for name in names}, "origin": origin, "source": source}


def _by_source(checks: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """(source, checks that pass, all of them) of each source that there is."""
    found = ((source, [c for c in checks if c["origin"] == source]) for source in SOURCES)
    return [(source, sum(c["verdict"] == "pass" for c in some), len(some)) for source, some in found if some]


def _picture(path: Path, prefix: str, title: str, description: str) -> Any:
    """The picture as markup, or None where there is none that can be read."""
    from markupsafe import Markup

    try:
        return Markup(inline_svg(path.read_text(encoding="utf-8"), prefix, title, description))
    except (OSError, ValueError):
        return None


def _json(path: Path, kind: type, default: Any) -> Any:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if not os.path.exists(path):
            return default
        raise StudyError(f"'{path}' is damaged ({error}). Run the study again: that writes it anew.") from error
    entries = found if isinstance(found, list) else []
    if not isinstance(found, kind) or not all(isinstance(entry, dict) for entry in entries):
        raise StudyError(f"'{path}' is damaged. Run the study again: that writes it anew.")
    return found


def _text(value: Any) -> str:
    """A value as a table shows it: four significant digits."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return as_text(value)


def _sort_key(value: Any) -> str:
    """What a column is sorted by: numbers in full."""
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else _text(value)
