"""The results file of a GPU run: JSON lines that are only ever added, one for every finding, when it is made.

    {"kind": "run", "schema": 1, "run": ..., "machine": {...}, "code": ...}    what the lines after it belong to
    {"kind": "finding", "part": ..., "key": ..., "ok": true, "value": ...}     or "ok": false and "error"
    {"kind": "state", "part": ..., "state": "started" | "done" | "ended", "words": ...}

A line is one write to a file opened for appending, so that several processes may write to it and one that is killed
loses the finding it was working on. The last line may be cut short: it is skipped, and the next one starts afresh.

Older and newer revisions read each other's files: names are added and never change their meaning, a reader leaves out
kinds and names that it does not know. ``schema`` is raised only if that has to be broken.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_process import watchdog

__all__ = ["FILE", "SCHEMA", "Finding", "Results", "Run", "read_runs", "write_whole"]

SCHEMA = 1
FILE = "results.jsonl"
#: Characters of an error that are kept.
_MOST = 1000


def write_whole(path: Path, text: str) -> None:
    """``text`` as the file ``path``, which is never there in part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


@dataclass(frozen=True)
class Finding:
    """One thing that was found: ``value``, or where ``ok`` is False what is wrong."""

    part: str
    key: str
    ok: bool
    value: Any = None
    error: str = ""
    seconds: float | None = None


@dataclass
class Run:
    """The findings of one machine, one revision: by part and key, the last one counts. ``states``: how parts stand."""

    machine: dict[str, Any]
    code: str = ""
    name: str = ""
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    started: float = 0.0

    def part(self, name: str) -> dict[str, Finding]:
        """The findings of a part, by key, in the order in which they were made."""
        return {key: found for (part, key), found in self.findings.items() if part == name}

    def is_done(self, part: str) -> bool:
        """Whether the part came to its end."""
        return self.states.get(part, ("", ""))[0] == "done"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines that are whole, JSON and objects of a kind."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for raw in data.split(b"\n"):
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("kind"), str):
            yield line


def _finding(line: dict[str, Any]) -> Finding | None:
    part, key = line.get("part"), line.get("key")
    if not isinstance(part, str) or not isinstance(key, str):
        return None
    return Finding(
        part, key, bool(line.get("ok", False)), line.get("value"), str(line.get("error", "")), line.get("seconds")
    )


def read_runs(path: Path) -> list[Run]:
    """The runs of the results file ``path``, oldest first; none if there is no such file."""
    runs: list[Run] = []
    for line in _lines(path):
        if line["kind"] == "run":
            machine = line.get("machine")
            runs.append(
                Run(
                    machine if isinstance(machine, dict) else {},
                    str(line.get("code", "")),
                    str(line.get("run", "")),
                    started=float(line.get("time", 0.0)),
                )
            )
        elif not runs:
            continue
        elif line["kind"] == "finding":
            found = _finding(line)
            if found is not None:
                runs[-1].findings.pop((found.part, found.key), None)  # the order is that of the last ones
                runs[-1].findings[found.part, found.key] = found
        elif line["kind"] == "state" and isinstance(line.get("part"), str):
            runs[-1].states[line["part"]] = (str(line.get("state", "")), str(line.get("words", "")))
    return runs


#: What of a machine has to be the same for findings to be of one run.
_SAME = ("gpu", "capability", "driver", "torch", "cuda", "packages", "python")


class Results:
    """The results file of a folder, for reading and adding."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        self.end = float("inf")
        #: Called after a finding that is a failure.
        self.after_failure: Callable[[], None] = lambda: None
        runs = read_runs(self.path)
        self.run = runs[-1] if runs else Run({})

    def begin(self, machine: dict[str, Any], code: str, fresh: bool = False) -> bool:
        """Go on with the file's last run if it is of this machine and code, else start one; whether it went on."""
        same = all(self.run.machine.get(name) == machine.get(name) for name in _SAME)
        if self.run.machine and same and self.run.code == code and not fresh:
            return True
        name = uuid.uuid4().hex[:8]
        self.run = Run(machine, code, name, started=time.time())
        self._write({"kind": "run", "schema": SCHEMA, "run": name, "machine": machine, "code": code})
        return False

    def has(self, part: str, key: str) -> bool:
        """Whether there is such a finding."""
        return (part, key) in self.run.findings

    def add(
        self,
        part: str,
        key: str,
        value: Any = None,
        ok: bool = True,
        error: str = "",
        seconds: float | None = None,
    ) -> None:
        """Add a finding."""
        found = Finding(part, key, ok, value, error[:_MOST], seconds)
        self.run.findings[part, key] = found
        line = {"kind": "finding", "part": part, "key": key, "ok": ok}
        line |= {} if value is None else {"value": value}
        line |= {"error": found.error} if error else {}
        line |= {} if seconds is None else {"seconds": round(seconds, 4)}
        self._write(line)

    def state(self, part: str, state: str, words: str = "") -> None:
        """Add how a part stands."""
        self.run.states[part] = (state, words)
        self._write({"kind": "state", "part": part, "state": state, "words": words[:_MOST]})

    def late(self) -> bool:
        """Whether the time that was given (``end``, of ``time.monotonic``) is over."""
        return time.monotonic() > self.end

    def measure(self, part: str, key: str, work: Callable[[], Any], limit: float = 120.0) -> None:
        """``work()`` as a finding, unless there is one or the time is over. What it raises is the finding then.

        Work that is not done after ``limit`` seconds, a kernel that hangs, is a failure and ends the process.
        """
        if self.has(part, key) or self.late():
            return
        begin = time.monotonic()
        hung = f"not done after {limit:.0f} s"
        try:
            with watchdog(limit, lambda: self.add(part, key, ok=False, error=hung, seconds=limit)):
                value = work()
            self.add(part, key, value, seconds=time.monotonic() - begin)
        except Exception as error:
            self.failed(part, key, error, time.monotonic() - begin)

    @contextlib.contextmanager
    def guard(self, part: str, key: str) -> Iterator[None]:
        """What is raised here is a finding, and the part goes on."""
        try:
            yield
        except Exception as error:
            self.failed(part, key, error)

    def failed(self, part: str, key: str, error: Exception, seconds: float | None = None) -> None:
        """Add what was raised as a failure."""
        words = " ".join(str(error).split("\n")[:4])  # PyTorch adds pages
        self.add(part, key, ok=False, error=f"{type(error).__name__}: {words}", seconds=seconds)
        self.after_failure()

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps({**line, "time": round(time.time(), 3)}) + "\n"
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            cut = size > 0 and os.pread(file, 1, size - 1) != b"\n"  # the last writer was killed
            os.write(file, ("\n" * cut + text).encode())
        finally:
            os.close(file)
