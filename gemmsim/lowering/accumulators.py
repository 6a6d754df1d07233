"""Lowers an accumulator to its program, or gives the reason why it has none."""

from __future__ import annotations

from gemmsim.arithmetic import Accumulator, Palette
from gemmsim.arithmetic.shuffled import Shuffled

from . import innermost_sums, instructions, orders  # noqa: F401  # both register their lowerings on import
from .abi_constants import MAX_WRAPPERS
from .orders import Wrapped, is_plain, wrapper_of
from .program import Program, run_of
from .refusal import Refusal

__all__ = ["program", "programs"]


def programs(accumulator: Accumulator, group: int | None = None) -> tuple[Program, ...] | Refusal:
    """Return the programs of a palette's members, or the one program of any other accumulator, or a ``Refusal``.

    ``group`` is the number of terms that share a pair of scales, for an accumulator that separates scales from
    elements.
    """
    found = []
    for member in accumulator.members if isinstance(accumulator, Palette) else (accumulator,):
        one = program(member, group)
        if isinstance(one, Refusal):
            return one
        found.append(one)
    return tuple(found)


def program(accumulator: Accumulator, group: int | None = None) -> Program | Refusal:
    """Return the program of ``accumulator``, or a ``Refusal`` with the reason why it has none."""
    wrappers: list[Wrapped] = []
    shuffle: Shuffled | None = None
    while (run := run_of(accumulator)) is None:
        if not is_plain(accumulator):
            return Refusal(f"{accumulator}: kernels do not have this order of totals yet")
        wrapper = wrapper_of(accumulator, group)
        if wrapper is None:
            return Refusal(f"accumulator {accumulator} is not made of sequential runs")
        if isinstance(accumulator, Shuffled):
            if wrappers:
                return Refusal(f"{accumulator} inside another accumulator: a permutation comes outermost and once here")
            shuffle = accumulator
        wrappers.append(wrapper)
        accumulator = accumulator.inner  # type: ignore[attr-defined]
    if not is_plain(accumulator):
        return Refusal(f"{accumulator}: kernels do not fill up the first tile yet")
    if len(wrappers) > MAX_WRAPPERS:
        return Refusal(f"{len(wrappers)} nested orders: at most {MAX_WRAPPERS} here")
    return Program(**vars(run), wrappers=tuple(wrappers), shuffle=shuffle)
