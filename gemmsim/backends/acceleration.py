"""Whether native products are asked for, in this thread and task: the state of ``gemmsim.cublas_acceleration``.

Nothing but the standard library: looking up a switch should not load the tables of a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["REFUSED", "Setting", "active", "asked", "current", "entries", "put", "restored"]

#: What people are told of a product that did not run where they asked for it, before the reason.
REFUSED = "cublas_acceleration refused"


class Setting(NamedTuple):
    """Whether native products are asked for, and in which mode."""

    enabled: bool
    fast_mode: str | None = None


class _Entries(NamedTuple):
    """What the current context has entered, innermost last; the first entry is that of ``enable``."""

    entries: tuple[tuple[object, Setting], ...]
    active: Setting | None


_STATE: ContextVar[_Entries | None] = ContextVar("gemmsim.cublas_acceleration", default=None)
#: ``asked() is None``: nothing was ever said here, which is what the path of small products looks at.
asked = _STATE.get


def active() -> Setting | None:
    """What was said last in this thread and task, on or off."""
    state = _STATE.get()
    return None if state is None else state.active


def current() -> Setting | None:
    """The setting in force in this thread and task; ``None``: off."""
    state = _STATE.get()
    return None if state is None or state.active is None or not state.active.enabled else state.active


def put(entries: tuple[tuple[object, Setting], ...]) -> None:
    """From here on ``entries`` have been entered, each with who entered it; the last is in force."""
    _STATE.set(_Entries(entries, entries[-1][1]) if entries else None)


def entries() -> tuple[tuple[object, Setting], ...]:
    """What ``put`` said last."""
    state = _STATE.get()
    return () if state is None else state.entries


@contextmanager
def restored(setting: Setting | None) -> Iterator[None]:
    """``setting`` in force inside, whatever is outside: for steps that belong to an earlier call."""
    state = _STATE.get()
    _STATE.set(None if setting is None else _Entries((), setting))
    try:
        yield
    finally:
        _STATE.set(state)
