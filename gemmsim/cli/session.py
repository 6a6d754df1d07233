"""The contexts of ``gemmsim emulate`` and ``gemmsim audit`` in one process: all of its threads, and what it forks.

The command opens a session in its own process; in those that its program starts, ``start.reach`` calls ``join``.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import wraps
from multiprocessing import util
from pathlib import Path
from typing import Any

import gemmsim as gs
from gemmsim.emulation import Config, Record, Report, carry

from .start import reach

__all__ = ["Request", "Session", "join", "merged"]


@dataclass(frozen=True)
class Request:
    """What a command asks for: a config as canonical text (None: PyTorch's own products), and whether to audit."""

    command: str
    config: str | None
    seed: int = 0
    strict: bool = False
    values: bool = False

    def save(self, folder: Path) -> None:
        """Writes it where processes of the run read it."""
        (folder / "request.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Request:
        """The request of a run.

        Raises:
            ProcessError: the run is over, or its folder is not here.
        """
        try:
            return cls(**json.loads((folder / "request.json").read_text(encoding="utf-8")))
        except OSError as error:
            raise reach.ProcessError(
                f"a process of 'gemmsim emulate' or 'gemmsim audit' that cannot read its session ('{folder}': "
                f"{error.strerror}); allowed: processes that import PyTorch while the command runs, on its machine.\n"
                f"  Try the command inside this process, or unset {reach.VARIABLE} for PyTorch's own products."
            ) from None


class Session:
    """Contexts of a request in this process, while it is entered.

    ``folder``: of the run, None for this process alone. ``context``: that of the emulation, None without a config.
    ``refused``: whether a strict audit has refused a product, also where the program caught that error.
    """

    def __init__(self, request: Request, folder: Path | None = None) -> None:
        self.request, self.folder = request, folder
        config = None if request.config is None else Config.from_json(request.config)
        self.context = None if config is None else gs.emulate(config, request.seed, step=0)
        self.auditor = gs.audit(strict=request.strict, values=request.values) if request.command == "audit" else None
        if self.auditor is not None:
            self.auditor.needs_products = False  # the products may be those of other threads and processes
        self.refused = False
        self.process = os.getpid()
        self._reports: list[Report] = []
        self._stack = ExitStack()

    def __enter__(self) -> Session:
        if self.context is not None:
            self._stack.enter_context(self.context)
        if self.auditor is not None:
            self._add(self._stack.enter_context(self.auditor))
            if self.request.strict:
                self._stack.callback(_note_errors(self))
            util.register_after_fork(self, Session._finish_forked)
            if (watch := reach.watched()) is not None:
                watch.audited = self.process
        _opened(self)
        self._stack.callback(_opened, None)
        self._stack.callback(_replaced(threading.Thread, "start", self._start))
        if self.folder is not None:
            self._stack.callback(_replaced(util, "spawnv_passfds", self._spawn))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def report(self) -> Report:
        """The products of this process so far, thread after thread."""
        return merged(self._reports)

    def write(self) -> None:
        """The report of this process into the folder of the run, if it has seen anything."""
        found = self.report
        if self.folder is None or not (found.records or found.algebra or found.opaque or self.refused):
            return
        text = json.dumps({**found.to_dict(), "refused": self.refused})
        try:
            part = self.folder / f"{os.getpid()}.part"
            part.write_text(text, encoding="utf-8")
            part.rename(self.folder / f"{os.getpid()}-{time.time_ns()}.report")
        except OSError:
            text = "warning: gemmsim audit has already ended; its report lacks the products of this process"
            print(text, file=sys.stderr, flush=True)

    def _add(self, report: Report) -> None:
        """Keeps a report, whose first product leaves a mark in the folder: a process that is killed reports nothing."""
        if self.folder is not None:
            report.records = _Marked(self.folder, report.records)
        self._reports.append(report)

    def forked(self) -> None:
        """In a process that was forked from this one: its report is of its own products."""
        self.refused = False
        for report in self._reports:
            for part in (report.records, report.algebra, report.opaque, report.assumed):
                part.clear()

    def _finish_forked(self) -> None:
        """In a process of multiprocessing that was forked from this one, which ends without Python's own ``atexit``."""
        util.Finalize(None, self.write, exitpriority=0)

    def _start(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``Thread.start`` of threads that run in the contexts of the thread that starts them, and are audited."""

        @wraps(original)
        def start(thread: threading.Thread) -> None:
            thread.run = self._run(carry(thread.run))  # type: ignore[method-assign]
            original(thread)

        return start

    def _run(self, run: Callable[[], Any]) -> Callable[[], Any]:
        if self.auditor is None:
            return run
        auditor = self.auditor

        def audited() -> None:
            with auditor as report:
                self._add(report)
                run()

        return audited

    def _spawn(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """How multiprocessing starts Python, which no audit hook sees."""

        @wraps(original)
        def spawn(path: Any, args: Iterable[Any], passfds: Any) -> Any:
            if (watch := reach.watched()) is not None:
                before = len(watch.started)
                watch.process([os.fsdecode(path), *reach.words_of(args)[1:]], None)
                del watch.started[before:]  # it has the environment of this process: nobody asks whether it came
            return original(path, args, passfds)

        return spawn


_session: Session | None = None


def _opened(session: Session | None) -> None:
    global _session
    _session = session


def _forked() -> None:
    if _session is not None:
        _session.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Marked(list[Record]):
    """Records of a process that says so in the folder at the first."""

    def __init__(self, folder: Path, records: Iterable[Record]) -> None:
        super().__init__(records)
        self.folder = folder

    def append(self, record: Record) -> None:
        if not self:
            try:
                (self.folder / f"{os.getpid()}.computes").touch()
            except OSError:
                pass  # the run is over
        super().append(record)


def merged(reports: Iterable[Report]) -> Report:
    """One report of all."""
    found = Report()
    for one in reports:
        found.records += one.records
        found.algebra += one.algebra
        for total, counts in ((found.opaque, one.opaque), (found.assumed, one.assumed)):
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
    return found


def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Replaces an attribute by what ``make`` makes of it; what puts it back."""
    original = getattr(owner, name, None)
    if original is None:
        return lambda: None
    setattr(owner, name, make(original))
    return lambda: setattr(owner, name, original)


def _note_errors(session: Session) -> Callable[[], None]:
    """From here on the session knows when a strict audit refuses a product; what ends that."""
    kind: Any = gs.NativeGemmError

    def noted(self: Any, *args: Any) -> None:
        RuntimeError.__init__(self, *args)
        session.refused = True

    kind.__init__ = noted
    return lambda: delattr(kind, "__init__")


def join(folder: str) -> None:
    """Opens the contexts of a run in this process, which its program started, until it ends.

    Raises:
        ProcessError: the run is over; PyTorch was first imported in another than the main thread, which has no way to
            open contexts in it.
    """
    request = Request.load(Path(folder))
    if threading.current_thread() is not threading.main_thread():
        raise reach.ProcessError(
            f"gemmsim {request.command}: a process that imports PyTorch in the thread "
            f"{threading.current_thread().name!r} first; allowed: in its main thread.\n"
            "  Try to import torch at the start of the program."
        )
    session = Session(request, Path(folder))
    session.__enter__()
    atexit.register(_leave, session)


def _leave(session: Session) -> None:
    session.__exit__(None, None, None)
    session.write()
