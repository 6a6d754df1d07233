"""Whether a library's products are asked for, in this thread and task: the state of ``gemmsim.cublas_acceleration`` and
``gemmsim.cutlass_acceleration``.

Nothing but the standard library: looking up a switch should not load the tables of a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["Setting", "asked", "current", "entries", "put", "refused", "restored", "said"]


class Setting(NamedTuple):
    """Whether native products are asked for, in which mode, and of which library: "cublas" or "cutlass".

    ``rounds_operands``: mptorch's rule holds, by which registers in fp16 round wider operands to fp16.
    """

    enabled: bool
    fast_mode: str | None = None
    library: str = "cublas"
    rounds_operands: bool = False


class _Entries(NamedTuple):
    """What the current context has entered, innermost last; the first entry is that of ``enable``."""

    entries: tuple[tuple[object, Setting], ...]
    in_force: Setting | None


_STATE: ContextVar[_Entries | None] = ContextVar("gemmsim.acceleration", default=None)
#: ``asked() is None``: nothing was ever said here, which is what the path of small products looks at.
asked = _STATE.get


def said(library: str) -> Setting | None:
    """What was said of this library last in this thread and task, on or off."""
    return next((setting for _, setting in reversed(entries()) if setting.library == library), None)


def current() -> Setting | None:
    """The setting in force in this thread and task; ``None``: no library is asked."""
    state = _STATE.get()
    return None if state is None else state.in_force


def refused() -> str:
    """What people are told of a product that did not run where they asked for it, before the reason."""
    setting = current()
    return f"{'cublas' if setting is None else setting.library}_acceleration refused"


def _in_force(entries: tuple[tuple[object, Setting], ...]) -> Setting | None:
    """The innermost library that is switched on and not off again further in."""
    off = set()
    for _, setting in reversed(entries):
        if not setting.enabled:
            off.add(setting.library)
        elif setting.library not in off:
            return setting
    return None


def put(entries: tuple[tuple[object, Setting], ...]) -> None:
    """From here on ``entries`` have been entered, each with who entered it, the innermost last."""
    _STATE.set(_Entries(entries, _in_force(entries)) if entries else None)


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
