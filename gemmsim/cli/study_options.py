"""Options of ``gemmsim study run``: those of every run, and those of the kind, made from its parameters."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmsim import study

__all__ = ["Request", "read"]

_SHARD = re.compile(r"(\d+)/(\d+)$")


@dataclass(frozen=True)
class Request:
    """What a person asked ``gemmsim study run`` for."""

    name: str
    out: Path
    dry_run: bool
    limit: int | None
    shard: tuple[int, int] | None
    workers: int | None
    cluster: str | None
    yes: bool
    #: Parameters of a kind, as given.
    parameters: dict[str, Any]


def read(words: Sequence[str]) -> Request:
    """The request that ``words`` make; prints help and exits 0 on --help, a message and exits 2 on a mistake.

    Raises:
        StudyError: a name that is no study and no kind, a shard that is none.
    """
    name = next((word for word in words if not word.startswith("-")), None)
    kind = study.kind(name) if name in study.kinds() else None
    if name is not None and name != "all" and kind is None:
        study.get(name)
    given = vars(_parser(kind).parse_args(list(words)))
    common = {key: given.pop(key) for key in ("name", "out", "dry_run", "limit", "shard", "workers", "cluster", "yes")}
    chosen = {key: value for key, value in given.items() if value is not None}
    return Request(**{**common, "shard": _shard(common["shard"])}, parameters=chosen)


def _parser(kind: type[study.Kind[Any]] | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gemmsim study run",
        description="Compute the cells that are not finished yet, then write table, pictures and verdicts. Exit code "
        "0: all checks of the study pass; 1: one fails, or a cell was given up; 2: a mistake in what was asked; 130: "
        "interrupted. Finished cells are never computed again.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "name",
        metavar="NAME|KIND",
        help="A study or a kind: see 'gemmsim study list'; 'all' runs every one that has checks.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="Folder of the results.")
    parser.add_argument("--dry-run", action="store_true", help="Print the cells and what they cost; compute nothing.")
    parser.add_argument("--limit", type=int, metavar="N", help="Compute at most this many cells now.")
    parser.add_argument("--workers", type=int, metavar="N", help="Compute in N processes of one thread each.")
    parser.add_argument("--cluster", metavar="ADDRESS", help="Dask scheduler, or 'local': needs gemmsim[cluster].")
    parser.add_argument("--shard", metavar="I/N", help="Only part I of N: job arrays; join them by 'study merge'.")
    parser.add_argument("--yes", action="store_true", help="Also if it takes more than an hour or half of the memory.")
    if kind is not None:
        group = parser.add_argument_group(f"parameters of {kind.parameters.kind}", kind.about)
        for option in study.options(kind.parameters):
            many: dict[str, Any] = {"nargs": "+", "action": "extend"} if option.many else {}
            text = f"{option.help} Default: {option.default or 'none'}.".replace("%", "%%")
            group.add_argument(
                option.flag, dest=option.name, metavar=option.metavar or option.name.upper(), help=text, **many
            )
    return parser


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _SHARD.match(text)
    if match is None:
        raise study.StudyError(f"--shard {text}; allowed: i/n with 1 <= i <= n, such as 1/4.")
    return int(match[1]), int(match[2])
