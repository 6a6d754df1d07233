"""Tables from accumulators' classes to functions that say what they are to a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gemmsim.arithmetic import Accumulator

__all__ = ["Function", "enter", "registered"]

Function = TypeVar("Function", bound=Callable[..., Any])


def enter(table: dict[type[Accumulator], Any], kinds: tuple[type[Accumulator], ...]) -> Callable[[Function], Function]:
    """Decorator: the function stands in ``table`` for accumulators of ``kinds``."""

    def register(function: Function) -> Function:
        table.update(dict.fromkeys(kinds, function))
        return function

    return register


def registered(table: dict[type[Accumulator], Any], accumulator: Accumulator) -> Any:
    """What ``table`` has for the accumulator's class or the nearest class above it, or None."""
    return next((table[kind] for kind in type(accumulator).__mro__ if kind in table), None)
