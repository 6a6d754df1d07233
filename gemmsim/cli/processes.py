"""The processes that a program under ``gemmsim emulate`` or ``gemmsim audit`` starts: reached, refused, or named."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmsim.emulation import Report

from .session import Request
from .start import reach

__all__ = ["Processes"]


class Processes:
    """While entered: Python processes that this one starts open the contexts of ``request``, too.

    ``order``: the words after ``python -m`` that emulate in a process itself. ``folder``: what they share.
    """

    def __init__(self, request: Request, order: str) -> None:
        self.request, self.order = request, order
        self._process = os.getpid()
        self.watch: reach.Watch | None = None

    def __enter__(self) -> Processes:
        self.folder = Path(tempfile.mkdtemp(prefix="gemmsim_run_"))
        self.request.save(self.folder)
        (self.folder / "order").write_text(self.order, encoding="utf-8")
        self._environment = {name: os.environ.get(name) for name in (reach.VARIABLE, "PYTHONPATH")}
        reach.repair(os.environ, str(self.folder))
        self.watch = reach.Watch(str(self.folder), self.order)
        self._before = reach.watch(self.watch)
        return self

    def __exit__(self, *error: Any) -> None:
        reach.watch(self._before)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if os.getpid() == self._process:  # not in a process that the program forked
            shutil.rmtree(self.folder, ignore_errors=True)

    def reports(self) -> list[tuple[Report, bool]]:
        """What other processes multiplied, one report each, and whether a strict audit refused a product there."""
        found = []
        for path in sorted(self.folder.glob("*.report")):
            data = json.loads(path.read_text(encoding="utf-8"))
            found.append((Report.from_dict(data), bool(data.get("refused"))))
        return found

    def missing(self) -> list[int]:
        """Processes that multiplied and have left no report: they were killed, or still run."""
        told = {path.name.partition("-")[0] for path in self.folder.glob("*.report")} | {str(os.getpid())}
        return sorted(int(path.stem) for path in self.folder.glob("*.computes") if path.stem not in told)

    def unreached(self) -> list[str]:
        """Commands that start Python, or may, of which no process has said that it is there."""
        there = self._there()
        asked: list[list[str]] = [] if self.watch is None else self.watch.started
        found = []
        for words in asked:
            match = _match(words, there)
            if match is None:
                found.append(" ".join(words))
            else:
                there.remove(match)
        return found

    def _there(self) -> list[list[str]]:
        """The words of every process that has said that it is there."""
        found = []
        for path in sorted(self.folder.glob("*.there")):
            found.append(path.read_text(encoding="utf-8", errors="surrogateescape").split("\0"))
        return found


def _match(words: Sequence[str], there: Sequence[list[str]]) -> list[str] | None:
    """The process that ``words`` started: its own words, or else any, where they are those of another program."""
    for one in there:
        if one[1:] == list(words[1:]):
            return one
    if reach.is_python(words[0]):
        return None
    name = os.path.basename(words[0])
    return next((one for one in there if any(os.path.basename(word) == name for word in one)), _any(there))


def _any(there: Sequence[list[str]]) -> list[str] | None:
    """A process that no other command explains; those of multiprocessing come by themselves."""
    return next((one for one in there if not any("multiprocessing" in word for word in one)), None)
