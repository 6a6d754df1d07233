"""Names of PyTorch that stand for something of this package while a context is open, and for what they did before then.

The objects that stood there are put back, the very same ones, when the last context of the process closes: after
errors, and in whichever order and thread contexts close. A name that somebody else has given to something new since
is left to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock, get_ident
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Wanted", "closed", "more", "opened", "trace_begins", "trace_ends"]

#: Class or module, name in it, and the function that makes ours from the object that stands there.
Wanted: TypeAlias = tuple[Any, str, Callable[[Any], Any]]


class _Replaced(NamedTuple):
    owner: Any
    name: str
    ours: Any
    theirs: Any


_lock = Lock()
_open = 0
#: What was asked for since the first of the open contexts opened.
_asked: set[Callable[[], Iterable[Wanted]]] = set()
#: Threads in which the compiler follows code that opens contexts.
_tracing: set[int] = set()
_replaced: list[_Replaced] = []
#: What was made the last time, for the next time that the same objects stand there.
_made: dict[tuple[Any, str], _Replaced] = {}


def opened(wanted: Callable[[], Iterable[Wanted]]) -> None:
    """A context opens: from the first one on that wants it ``wanted()`` is in place."""
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
    """A context closes."""
    global _open
    with _lock:
        _open -= 1
        _tracing.discard(get_ident())  # where a trace was given up inside a context
        _put_back()


def more(wanted: Callable[[], Iterable[Wanted]]) -> None:
    """A module has been loaded: what is wanted in it, too, if a context is open."""
    with _lock:
        if _open:
            _put(wanted())


def trace_begins(wanted: Callable[[], Iterable[Wanted]]) -> None:
    """The compiler follows the opening of a context that is in no other: what it has to find is in place.

    It may give the trace up at any place, so this is not counted; whatever is left over goes with the next context.
    """
    with _lock:
        _tracing.add(get_ident())
        _put(wanted())


def trace_ends() -> None:
    """The compiler follows the closing of that context."""
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
