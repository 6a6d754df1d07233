"""Words of ``gemmsim study run`` that are not options of every run: the study's name and the parameters of its kind."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from gemmsim import study

from .console import warn

__all__ = ["Request", "named", "parameters_of", "shard"]

_SHARD = re.compile(r"(\d+)/(\d+)$")


@dataclass(frozen=True)
class Request:
    """What a person asked ``gemmsim study run`` for."""

    name: str
    out: Path
    dry_run: bool = False
    limit: int | None = None
    shard: tuple[int, int] | None = None
    workers: int | None = None
    cluster: str | None = None
    yes: bool = False
    as_json: bool = False


def named(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name of the study among ``words``, and the parameters of its kind as given.

    Raises:
        StudyError: a name that is no study and no kind.
        BadParameter: no name, words that are no parameter.
    """
    kind = _kind(words)
    given = vars(_parser(kind).parse_args(list(words)))
    for option in study.options(kind.parameters) if kind is not None else ():
        for flag in option.former_flags:
            if any(word == flag or word.startswith(f"{flag}=") for word in words):
                warn(f"{flag} is an older name of {option.flag}. Write {option.flag}.")
    name = given.pop("name")
    if name != "all" and kind is None:
        study.get(name)
    return name, {key: value for key, value in given.items() if value is not None}


def parameters_of(words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The kind named among ``words``, and its parameters with their help; empty where none is named."""
    kind = _kind(words)
    if kind is None:
        return "", []
    rows = []
    for option in study.options(kind.parameters):
        value = f"<{(option.metavar or option.name).lower()}>{'...' if option.many else ''}"
        rows.append((f"{option.flag} {value}", f"{option.help} Default: {option.default or 'none'}."))
    return kind.parameters.kind, rows


def _kind(words: Sequence[str]) -> type[study.Kind[Any]] | None:
    name = next((word for word in words if word in study.kinds()), None)
    first = next((word for word in words if not word.startswith("-")), None)
    return None if name is None or first in study.names() else study.kind(name)


class _Parser(argparse.ArgumentParser):
    """One whose complaints are those of other commands."""

    def error(self, message: str) -> NoReturn:
        raise typer.BadParameter(message)


def _parser(kind: type[study.Kind[Any]] | None) -> _Parser:
    parser = _Parser(allow_abbrev=False, add_help=False)
    parser.add_argument("name", metavar="NAME|KIND")
    for option in study.options(kind.parameters) if kind is not None else ():
        many: dict[str, Any] = {"nargs": "+", "action": "extend"} if option.many else {}
        parser.add_argument(option.flag, *option.former_flags, dest=option.name, **many)
    return parser


def shard(text: str | None) -> tuple[int, int] | None:
    """Part and parts of ``text``.

    Raises:
        StudyError: it is none.
    """
    if text is None:
        return None
    match = _SHARD.match(text)
    if match is None:
        raise study.StudyError(f"--shard {text}; allowed: i/n with 1 <= i <= n, such as 1/4.")
    return int(match[1]), int(match[2])
