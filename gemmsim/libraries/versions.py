"""Versions of a library, and which of them a text means."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..formats.errors import shown
from .errors import library_error

__all__ = ["check_version", "is_prefix", "matching", "newest"]


def check_version(argument: str, version: object) -> str:
    """``version`` where it is numbers between dots.

    Raises:
        LibraryError: for anything else, such as "13.x".
    """
    if isinstance(version, str) and re.fullmatch(r"\d+(\.\d+){0,3}", version):
        return version
    raise library_error(
        f"{argument}={shown(version)}",
        "one to four numbers between dots, as text: '13', '13.1', '13.1.1'",
        "torch.backends.cuda and pip list nvidia-cublas show the installed version.",
    )


def is_prefix(short: str, long: str) -> bool:
    """Whether ``short`` is the beginning of ``long``, number by number: '13.1' of '13.1.1', not of '13.10'."""
    return long.split(".")[: short.count(".") + 1] == short.split(".")


def matching(version: str, known: Iterable[str]) -> list[str]:
    """Those of ``known`` that ``version`` is a prefix of."""
    return [one for one in known if is_prefix(version, one)]


def newest(versions: Iterable[str]) -> str:
    """The largest version, compared number by number."""
    return max(versions, key=lambda one: [int(part) for part in one.split(".")])
