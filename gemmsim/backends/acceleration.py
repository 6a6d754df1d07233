"""The state of ``gemmsim.cublas_acceleration`` and ``gemmsim.cutlass_acceleration`` in this thread and task.

The state says whether the user requests products of a library. The module needs only the standard library, so that
reading the state does not load the tables of a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["Setting", "asked", "current", "entries", "put", "refused", "restored", "said"]


class Setting(NamedTuple):
    """Whether native products are requested, in which mode, and of which library: "cublas" or "cutlass".

    ``rounds_operands``: mptorch's rule applies, by which registers in fp16 round wider operands to fp16.
    """

    enabled: bool
    fast_mode: str | None = None
    library: str = "cublas"
    rounds_operands: bool = False


class _Entries(NamedTuple):
    """The settings that the current context has entered, innermost last. The first entry is that of ``enable``."""

    entries: tuple[tuple[object, Setting], ...]
    in_force: Setting | None


_STATE: ContextVar[_Entries | None] = ContextVar("gemmsim.acceleration", default=None)
#: ``asked() is None`` means that this context has no entries. The path of small products checks this.
asked = _STATE.get


def said(library: str) -> Setting | None:
    """Return the innermost setting of this library in this thread and task, on or off."""
    return next((setting for _, setting in reversed(entries()) if setting.library == library), None)


def current() -> Setting | None:
    """Return the setting in force in this thread and task; ``None`` if no library is requested."""
    state = _STATE.get()
    return None if state is None else state.in_force


def refused() -> str:
    """Return the start of the message about a requested product that the library refused; the reason follows it."""
    setting = current()
    return f"{'cublas' if setting is None else setting.library}_acceleration refused"


def _in_force(entries: tuple[tuple[object, Setting], ...]) -> Setting | None:
    """Return the setting of the innermost library that is on and that no entry further in switches off."""
    off = set()
    for _, setting in reversed(entries):
        if not setting.enabled:
            off.add(setting.library)
        elif setting.library not in off:
            return setting
    return None


def put(entries: tuple[tuple[object, Setting], ...]) -> None:
    """Set the entries of this context: pairs of the object that entered and its setting, the innermost last."""
    _STATE.set(_Entries(entries, _in_force(entries)) if entries else None)


def entries() -> tuple[tuple[object, Setting], ...]:
    """Return the entries that ``put`` set last."""
    state = _STATE.get()
    return () if state is None else state.entries


@contextmanager
def restored(setting: Setting | None) -> Iterator[None]:
    """Context manager: put only ``setting`` in force, for steps that belong to an earlier call."""
    state = _STATE.get()
    _STATE.set(None if setting is None else _Entries((), setting))
    try:
        yield
    finally:
        _STATE.set(state)
