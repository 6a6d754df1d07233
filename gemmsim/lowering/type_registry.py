"""Tables from classes of accumulators to the functions that lower them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gemmsim.arithmetic import Accumulator

__all__ = ["Function", "enter", "registered"]

Function = TypeVar("Function", bound=Callable[..., Any])


def enter(table: dict[type[Accumulator], Any], kinds: tuple[type[Accumulator], ...]) -> Callable[[Function], Function]:
    """Decorator: enter the function in ``table`` for accumulators of ``kinds``."""

    def register(function: Function) -> Function:
        table.update(dict.fromkeys(kinds, function))
        return function

    return register


def registered(table: dict[type[Accumulator], Any], accumulator: Accumulator) -> Any:
    """Return the entry of ``table`` for the accumulator's class or its nearest base class, or None."""
    return next((table[kind] for kind in type(accumulator).__mro__ if kind in table), None)
