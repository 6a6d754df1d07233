"""The program of an accumulator, or why there is none."""

from __future__ import annotations

from gemmsim.arithmetic import Accumulator, Palette
from gemmsim.arithmetic.shuffled import Shuffled

from . import innermost_sums, instructions, orders  # noqa: F401  # they register what accumulators are
from .abi_constants import MAX_WRAPPERS
from .orders import Wrapped, wrapper_of
from .program import Program, run_of
from .refusal import Refusal

__all__ = ["program", "programs"]


def programs(accumulator: Accumulator, group: int | None = None) -> tuple[Program, ...] | Refusal:
    """The programs of a palette's members, or the one of any other accumulator; or why there is none.

    ``group``: terms that share a pair of scales, where the accumulator takes them apart.
    """
    found = []
    for member in accumulator.members if isinstance(accumulator, Palette) else (accumulator,):
        one = program(member, group)
        if isinstance(one, Refusal):
            return one
        found.append(one)
    return tuple(found)


def program(accumulator: Accumulator, group: int | None = None) -> Program | Refusal:
    """The program of ``accumulator``, or why there is none."""
    wrappers: list[Wrapped] = []
    shuffle: Shuffled | None = None
    while (run := run_of(accumulator)) is None:
        wrapper = wrapper_of(accumulator, group)
        if wrapper is None:
            return Refusal(f"accumulator {accumulator} is not made of sequential runs")
        if isinstance(accumulator, Shuffled):
            if wrappers:
                return Refusal(f"{accumulator} inside another accumulator: a permutation comes outermost and once here")
            shuffle = accumulator
        wrappers.append(wrapper)
        accumulator = accumulator.inner  # type: ignore[attr-defined]
    if len(wrappers) > MAX_WRAPPERS:
        return Refusal(f"{len(wrappers)} nested orders: at most {MAX_WRAPPERS} here")
    return Program(**vars(run), wrappers=tuple(wrappers), shuffle=shuffle)
