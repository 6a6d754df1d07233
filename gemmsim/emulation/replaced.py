"""Replaces names of PyTorch while a context is open, and restores the original objects afterwards.

The very same objects are restored when the last context of the process closes: also after errors, and in whichever
order and thread contexts close. A name to which other code has since assigned a new object is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock, get_ident
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Wanted", "closed", "more", "opened", "trace_begins", "trace_ends"]

#: Class or module, name in it, and the function that makes the replacement from the original object.
Wanted: TypeAlias = tuple[Any, str, Callable[[Any], Any]]


class _Replaced(NamedTuple):
    owner: Any
    name: str
    ours: Any
    theirs: Any


_lock = Lock()
_open = 0
#: Requests since the first of the open contexts opened.
_asked: set[Callable[[], Iterable[Wanted]]] = set()
#: Threads in which the compiler traces code that opens contexts.
_tracing: set[int] = set()
_replaced: list[_Replaced] = []
#: The last replacement of each name, for the next time that the same original object is found.
_made: dict[tuple[Any, str], _Replaced] = {}


def opened(wanted: Callable[[], Iterable[Wanted]]) -> None:
    """Records that a context opens. ``wanted()`` is in place from the first context on that requests it."""
    global _open
    with _lock:
        _open += 1
        try:
            if wanted not in _asked:
                _put(wanted())
                _asked.add(wanted)
        except BaseException:
            _open -= 1
            _put_back()
            raise


def closed() -> None:
    """Records that a context closes."""
    global _open
    with _lock:
        _open -= 1
        _tracing.discard(get_ident())  # where a trace was abandoned inside a context
        _put_back()


def more(wanted: Callable[[], Iterable[Wanted]]) -> None:
    """Puts the replacements of a newly loaded module in place, if a context is open."""
    with _lock:
        if _open:
            _put(wanted())


def trace_begins(wanted: Callable[[], Iterable[Wanted]]) -> None:
    """Records that the compiler traces the opening of an outermost context, and puts in place what it must find.

    The compiler may abandon the trace at any point, so this is not counted. The next context removes what remains.
    """
    with _lock:
        _tracing.add(get_ident())
        _put(wanted())


def trace_ends() -> None:
    """Records that the compiler traces the closing of that context."""
    with _lock:
        _tracing.discard(get_ident())
        _put_back()


def _put(wanted: Iterable[Wanted]) -> None:
    known = {(one.owner, one.name) for one in _replaced}
    for owner, name, make in wanted:
        if (owner, name) not in known:
            theirs = vars(owner)[name]
            one = _made.get((owner, name))
            if one is None or one.theirs is not theirs:
                one = _made[owner, name] = _Replaced(owner, name, make(theirs), theirs)
            setattr(owner, name, one.ours)
            _replaced.append(one)


def _put_back() -> None:
    if not _open:
        _asked.clear()
    while not (_open or _tracing) and _replaced:
        owner, name, ours, theirs = _replaced.pop()
        if vars(owner).get(name) is ours:
            setattr(owner, name, theirs)
