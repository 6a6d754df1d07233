"""Classes for single instances: a module's own class with something added, under the name of that class.

Files and other libraries know models by the names of their classes, so a class that is made keeps the name and the
module of the one it was made from. Copies and pickles hold what it was made from, and by which functions.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

__all__ = ["Made", "blank", "derived"]

#: A function at the top of a file that gives the class made from a class, the same one each time.
Maker: TypeAlias = Callable[[type], type]
_MADE: dict[tuple[Maker, type], type] = {}


class Made:
    """Mixin of classes that are made, for copies and pickles of their instances.

    A module that pickles in a way of its own keeps that way.
    """

    _gemmsim_made: tuple[Maker, type]

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        make, arguments, *rest = reduced
        if make is not copyreg.__newobj__ or arguments != (type(self),):  # type: ignore[attr-defined]
            return reduced
        kind: type = type(self)
        makers: list[Maker] = []
        while "_gemmsim_made" in vars(kind):
            maker, kind = vars(kind)["_gemmsim_made"]
            makers.insert(0, maker)
        return (blank, (kind, tuple(makers)), *rest)


def derived(base: type, maker: Maker, bases: tuple[type, ...], **members: Any) -> type:
    """The class with ``base``'s name, of these ``bases``, that ``maker(base)`` gives: made once."""
    found = _MADE.get((maker, base))
    if found is None:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "_gemmsim_made": (maker, base)}
        found = _MADE[maker, base] = type(base.__name__, bases, {**names, **members})
    return found


def blank(kind: Any, makers: Iterable[Maker]) -> Any:
    """An empty instance of the class that ``makers`` make from ``kind``, for ``copy`` and ``pickle`` to fill."""
    for maker in makers:
        kind = maker(kind)
    return kind.__new__(kind)
