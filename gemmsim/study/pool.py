"""Processes on this machine that compute cells: they compute and send rows back, and only the parent writes.

Each worker is a process of its own with one pipe to the parent. It prepares the study, tells the fingerprint of that,
then gets one cell at a time. A worker that dies gives its cell back and is replaced.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import pickle
import signal
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .base import Study
from .cells import Cell, Row
from .errors import StudyError
from .execution import MOST_DEATHS, Assignment, Failure, Worker

__all__ = ["MOST_WORKERS", "Processes", "RemoteTraceback", "check_workers", "packed_study", "refuse_other_inputs"]

MOST_WORKERS = 1024
#: Seconds that a process whose pipe ended has to end itself, so that its exit status is its own.
_SECONDS_TO_END = 5.0
#: What the process that forks workers loads once, so that each of them starts in milliseconds instead of seconds.
_PRELOADED = ["numpy", "torch", "torch.library"]


class RemoteTraceback(Exception):
    """Cause of an error that came from a worker: the traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Processes:
    """An Executor of ``workers`` processes on this machine, each with one thread of PyTorch.

    Rows arrive as they are finished; except for time columns they equal those of ``Inline``. A worker that dies
    (killed for memory, crashed) is replaced, and its cell is computed again. The third death at one cell makes it a
    Failure. Workers ignore Ctrl-C; the parent ends them.

    The study must be importable, so that it can be pickled. A script that calls ``study.run`` with this executor must
    do so under ``if __name__ == "__main__":``, as always with multiprocessing.

    Raises:
        StudyError: for fewer than one worker or more than 1,024.

    Example:
        >>> gs.study.Processes(0)
        Traceback (most recent call last):
            ...
        gemmsim.study.errors.StudyError: workers = 0; allowed: 1 to 1,024 processes.
    """

    def __init__(self, workers: int) -> None:
        check_workers(workers)
        self.workers = workers

    def run(self, worker: Worker, folder: Path, cells: Sequence[Cell]) -> Generator[Row | Failure, None, None]:
        """Yield rows in the order in which they are finished.

        Raises:
            StudyError: if the study cannot be sent to another process, or workers die before their first cell or
                prepared something else than this process did. Any error of ``evaluate`` is raised unchanged.

        Example:
            >>> list(gs.study.Processes(2).run(gs.study.Worker(gs.study.kind("growth")(K=64), None), None, []))
            []
        """
        with contextlib.closing(_Pool(worker, folder, cells, self.workers)) as pool:
            yield from pool.outcomes()


@dataclass(eq=False)
class _Member:
    """A worker process as the parent sees it: its pipe, and the cell it is at."""

    process: Any
    connection: Connection
    cell: Cell | None = None
    ready: bool = False

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class _Pool:
    def __init__(self, worker: Worker, folder: Path, cells: Sequence[Cell], workers: int) -> None:
        self._fingerprint = worker.fingerprint
        self._study = packed_study(worker.study)
        self._folder = folder
        self._left = len(cells)
        self._assignment = Assignment(cells)
        self._context = _context()
        self._members: list[_Member] = []
        self._wanted = min(workers, len(cells))
        self._failed_starts = 0

    def outcomes(self) -> Generator[Row | Failure, None, None]:
        while self._left:
            while len(self._members) < min(self._wanted, self._left):
                self._start()
            for idle in [member for member in self._members if member.ready and member.cell is None]:
                self._next(idle)
            for member in self._talking():
                try:
                    word, content = member.connection.recv()
                except (EOFError, OSError):
                    failure = self._buried(member)
                    if failure is not None:
                        self._left -= 1
                        yield failure
                    continue
                if word == "error":
                    raise _unpacked(*content)
                if word == "ready":
                    refuse_other_inputs(content, self._fingerprint, "a worker")
                    member.ready, self._failed_starts = True, 0
                    continue
                self._next(member)
                self._left -= 1
                yield content

    def close(self) -> None:
        for member in self._members:
            with contextlib.suppress(OSError):
                member.kill()
        self._members.clear()

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._study, self._folder), daemon=True)
        process.start()
        # Only the worker holds its end now: when it dies, ours reads the end of the pipe.
        theirs.close()
        self._members.append(_Member(process, ours))

    def _talking(self) -> list[_Member]:
        """Members that said something or died; waits for one."""
        by_pipe = {member.connection: member for member in self._members}
        return [by_pipe[pipe] for pipe in multiprocessing.connection.wait(list(by_pipe))]  # type: ignore[index]

    def _next(self, member: _Member) -> None:
        member.cell = self._assignment.take(member)
        if member.cell is not None:
            # One that dies at this moment is noticed when its pipe is read.
            with contextlib.suppress(OSError):
                member.connection.send(member.cell)

    def _buried(self, member: _Member) -> Failure | None:
        """Takes a dead member out; a Failure if its cell is given up."""
        member.process.join(_SECONDS_TO_END)
        member.kill()
        self._members.remove(member)
        death = f"ended by {_end_of(member.process.exitcode)}"
        again = self._assignment.give_back(member, member.cell)
        if member.cell is None and not member.ready:
            self._failed_starts += 1
            if self._failed_starts >= MOST_DEATHS:
                raise StudyError(
                    f"worker processes {death} before their first cell. A script that starts them does so under "
                    "if __name__ == '__main__':. If memory is short, ask for fewer workers."
                )
        if again or member.cell is None:
            return None
        return Failure(member.cell, f"the worker process was {death}, {MOST_DEATHS} times at this cell")


def check_workers(workers: int) -> None:
    """Raises StudyError for a number of processes that is none."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST_WORKERS:
        raise StudyError(f"workers = {workers!r}; allowed: 1 to {MOST_WORKERS:,} processes.")


def packed_study(study: Study) -> bytes:
    """``study`` for another process.

    Raises:
        StudyError: it cannot be pickled.
    """
    try:
        return pickle.dumps(study)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise StudyError(
            f"the study {study.name!r} cannot be sent to other processes: {error}. Define its class at the top of a "
            "module, or run it without workers."
        ) from error


def refuse_other_inputs(theirs: str, ours: str, who: str) -> None:
    """Raises StudyError if what ``who`` prepared has not our fingerprint: its rows would belong to something else."""
    if theirs != ours:
        raise StudyError(
            f"{who} prepared other inputs than this process: fingerprint {theirs} instead of {ours}. prepare() must "
            "give the same everywhere; let it read what it keeps in the folder, and let all workers see that folder."
        )


def _context() -> Any:
    """Processes forked from a fresh one that has loaded PyTorch; where there is no such thing, started anew."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _serve(connection: Connection, study: bytes, folder: Path) -> None:
    """A worker's life: ends when the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        try:
            worker = Worker(pickle.loads(study), folder)
        except BaseException as error:
            connection.send(("error", _packed(error)))
            return
        connection.send(("ready", worker.fingerprint))
        while True:
            cell = connection.recv()
            try:
                answer: tuple[str, Any] = ("row", worker.compute(cell))
            except BaseException as error:
                answer = ("error", _packed(error))
            connection.send(answer)


def _packed(error: BaseException) -> tuple[bytes, str]:
    """An exception as bytes (a RuntimeError where it does not come back from bytes), and its traceback as text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        content = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content, text


def _unpacked(content: bytes, text: str) -> BaseException:
    error = pickle.loads(content)
    assert isinstance(error, BaseException)
    error.__cause__ = RemoteTraceback(text)
    return error


def _end_of(exitcode: int | None) -> str:
    """``signal 9 (Killed)`` or ``exit status 1``."""
    if exitcode is not None and exitcode < 0:
        return f"signal {-exitcode} ({signal.strsignal(-exitcode) or 'unknown'})"
    return f"exit status {exitcode}"
