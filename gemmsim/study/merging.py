"""Joining the folders of one study: shards of a job array, or the same study computed in several places."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemmsim._files import replacing

from .base import Study
from .cells import Row
from .errors import StudyError
from .files import folder_lock, make_folder, writing
from .registry import with_parameters
from .runner import RunSummary, run
from .store import ResultStore, claim, owner, read_rows

__all__ = ["merge"]

#: What a run writes itself; everything else in a folder was made by ``prepare``.
_WRITTEN = {
    "results.jsonl",
    "results.damaged.jsonl",
    "failures.jsonl",
    "study.json",
    "results.csv",
    "table.txt",
    "verdicts.json",
    "plot.png",
    "plot.svg",
}


@dataclass(frozen=True)
class _Part:
    """What one folder holds."""

    folder: Path
    name: str
    parameters: list[dict[str, Any]]
    rows: list[Row]
    problems: list[str]


def merge(folders: Iterable[str | Path], out: str | Path, *, study: Study | None = None) -> RunSummary:
    """Join the results in ``folders`` in the folder ``out``: one row for each cell, the newest.

    Rows are copied byte for byte. Then table, pictures and verdicts are made from all rows, and the summary is that
    of a run that computes nothing. Cells that no folder has remain; ``run`` in ``out`` continues with them, because
    what ``prepare`` kept in the folders is copied, too. ``out`` may hold rows of the same study already; ``folders``
    are only read.

    ``study``: the study to which they belong, if it is not registered; by default the one named in the folders, for a
    kind with the parameters of all of them.

    Raises:
        StudyError: for no folder, or one without results; for folders of different studies, layouts or versions of
            gemmsim; for rows computed with different inputs (fingerprints); if ``out`` cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> studies = {K: gs.study.kind("growth")(spec=["e5m10"], K=K, dist="randn") for K in (64, 128)}
        >>> with TemporaryDirectory() as home:
        ...     parts = [gs.study.run(study, f"{home}/{K}").folder for K, study in studies.items()]
        ...     print([row["K"] for row in gs.study.merge(parts, f"{home}/whole").rows])
        [64, 128]
    """
    parts = [_read(Path(folder)) for folder in folders]
    if not parts:
        raise StudyError("no folder to merge. Name one or more, such as: gemmsim study merge shard_* --out whole.")
    path = Path(out)
    if os.path.isfile(path / "results.jsonl") and all(part.folder.resolve() != path.resolve() for part in parts):
        parts.insert(0, _read(path))
    _refuse_strangers(parts)
    sets = [one for part in parts for one in part.parameters]
    parameters = list({json.dumps(one, sort_keys=True): one for one in sets}.values())
    chosen = study if study is not None else with_parameters(parts[0].name, parameters)
    make_folder(path)
    with folder_lock(path):
        claim(path, chosen.name, parameters)
        _copy_prepared(parts, path)
        with ResultStore(path) as store:
            known = {row["cell"]: row["digest"] for row in store.rows()}
            for row in _newest(parts):
                if known.get(row["cell"]) != row["digest"]:
                    store.add(row)
    summary = run(chosen, path, limit=0)
    return replace(summary, problems=[problem for part in parts for problem in part.problems])


def _read(folder: Path) -> _Part:
    if not os.path.isfile(folder / "results.jsonl"):
        raise StudyError(f"no results in '{folder}' (looked for results.jsonl). Run the study there first.")
    named = owner(folder)
    if named is None:
        raise StudyError(f"'{folder}' does not say of which study it is (looked for study.json).")
    rows, problems = read_rows(folder)
    return _Part(folder, named["study"], named.get("parameters", []), rows, [f"{folder}: {text}" for text in problems])


def _refuse_strangers(parts: Sequence[_Part]) -> None:
    """Raises StudyError unless all folders are of one study, and their rows of one version and one fingerprint."""
    first = parts[0]
    for part in parts:
        if part.name != first.name:
            raise StudyError(
                f"'{part.folder}' holds results of {part.name!r}, '{first.folder}' of {first.name!r}. Merge folders of "
                "one study."
            )
    for column, words, advice in (
        ("library", "versions of gemmsim", "Compute all of them with one."),
        ("fingerprint", "inputs", "Begin every shard from one prepared folder: copy that of the first, then run it."),
    ):
        found: dict[Any, Path] = {}
        for part in parts:
            for row in part.rows:
                found.setdefault(row.get(column), part.folder)
        if len(found) > 1:
            (one, here), (other, there) = list(found.items())[:2]
            raise StudyError(f"rows computed with different {words}: {one} in '{here}', {other} in '{there}'. {advice}")


def _newest(parts: Sequence[_Part]) -> list[Row]:
    """One row of each cell, by when it was finished; of equal ones that of the later folder."""
    found: dict[str, Row] = {}
    for part in parts:
        for row in part.rows:
            known = found.get(row["cell"])
            if known is None or str(row.get("finished_at")) >= str(known.get("finished_at")):
                found[row["cell"]] = row
    return list(found.values())


def _copy_prepared(parts: Sequence[_Part], out: Path) -> None:
    """What ``prepare`` kept, so that ``out`` can go on with the same inputs."""
    for part in parts:
        for file in sorted(part.folder.iterdir()):
            target = out / file.name
            if file.is_file() and file.name not in _WRITTEN and file.name[0] != "." and not target.exists():
                with writing(target), replacing(target) as temporary:
                    shutil.copyfile(file, temporary)
