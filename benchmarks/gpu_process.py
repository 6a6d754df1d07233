"""Processes of a GPU run: they end with who started them, are found again if they did not, and give a lost GPU up.

A kernel that faults takes the GPU from its whole process, one that hangs never gives it back. What was found is on disk
by then; the process ends with ``GPU_LOST``, and its part goes on in a new one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = [
    "GPU_LOST",
    "MARK",
    "SMOKE_READY",
    "Busy",
    "die_with_parent",
    "end_leftovers",
    "gpu_is_lost",
    "locked",
    "run",
    "watchdog",
]

#: Exit code of a process without its GPU.
GPU_LOST = 86
#: Environment variable that processes of a run carry: the folder of its results.
MARK = "GEMMSIM_GPU_RUN"
#: Said by the compiler that runs ahead as soon as the kernels of smoke are there, which come first.
SMOKE_READY = "smoke can start"
_PR_SET_PDEATHSIG = 1


class Busy(Exception):
    """Another run writes to the same folder."""


def die_with_parent() -> None:
    """Linux kills this process when the one that started it ends, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One run at a time in ``folder``; ``Busy`` if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"another run writes to {folder}; allowed: one at a time.\n  Wait for it, or end it.") from None
        yield


def end_leftovers(folder: Path) -> int:
    """Kills what an earlier run of ``folder`` left running (it was killed itself); how many processes that were."""
    wanted, ended = f"{MARK}={folder.resolve()}".encode(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
        except OSError:
            continue
    return ended


def run(
    command: Sequence[str],
    limit: float,
    environment: dict[str, str],
    cwd: Path,
    log: Path | None = None,
    prepare: Callable[[], None] = die_with_parent,
) -> int | None:
    """The exit code of ``command``, None if it was ended after ``limit`` seconds; nothing that it started is left."""
    with contextlib.ExitStack() as stack:
        out = None if log is None else stack.enter_context(log.open("ab"))
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            start_new_session=True,
            preexec_fn=prepare,
            stdout=out,
            stderr=None if out is None else subprocess.STDOUT,
        )
        try:
            return process.wait(max(0.1, limit))
        except subprocess.TimeoutExpired:
            return None
        finally:  # an exception of a signal, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def gpu_is_lost() -> str:
    """Why this process can use its GPU no more; "" while it can. Waits for what is running there."""
    import torch

    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


@contextlib.contextmanager
def watchdog(seconds: float, then: Callable[[], None]) -> Iterator[None]:
    """Calls ``then`` and ends this process with ``GPU_LOST`` if the context is still open after ``seconds``."""

    def bark() -> None:
        then()
        sys.stderr.flush()
        os._exit(GPU_LOST)

    timer = threading.Timer(seconds, bark)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def countdown(minutes: float) -> float:
    """When ``minutes`` from now is, of ``time.monotonic``."""
    return time.monotonic() + 60 * minutes
