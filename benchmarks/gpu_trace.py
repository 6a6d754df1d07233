"""Which kernels ran: a wrong result is of use if it names them. And kernels made ready without running them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from gemmsim.backends.cuda.jit.launch import LoadedKernel

__all__ = ["Launched", "launched", "planning"]

#: Most names that are kept.
_MOST = 12
_lock = threading.Lock()
_open: list[Launched] = []
_here = threading.local()


class Launched:
    """Names of the last kernels that this process launched, in order, each once."""

    def __init__(self) -> None:
        self._names: deque[str] = deque(maxlen=_MOST)

    def note(self, name: str) -> None:
        if name in self._names:
            self._names.remove(name)
        self._names.append(name)

    def clear(self) -> None:
        self._names.clear()

    def __str__(self) -> str:
        return "; ".join(self._names) or "none of ours"


_launch = LoadedKernel.__call__


def _noted(self: LoadedKernel, *args: Any) -> None:
    if getattr(_here, "planning", False):
        return
    for found in list(_open):
        found.note(str(self.source))
    _launch(self, *args)


LoadedKernel.__call__ = _noted  # type: ignore[method-assign]


@contextlib.contextmanager
def launched() -> Iterator[Launched]:
    """Notes the kernels launched while it is open, in all threads."""
    found = Launched()
    with _lock:
        _open.append(found)
    try:
        yield found
    finally:
        with _lock:
            _open.remove(found)


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """What this thread calls compiles and loads its kernels and launches none: results are not computed."""
    _here.planning = True
    try:
        yield
    finally:
        _here.planning = False
