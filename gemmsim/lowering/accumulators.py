"""Lowers an accumulator to its program, or gives the reason why it has none."""

from __future__ import annotations

from gemmsim.arithmetic import Accumulator, Binned, Exact, Palette
from gemmsim.arithmetic.shuffled import Shuffled

from . import innermost_sums, instructions, orders  # noqa: F401  # both register their lowerings on import
from .abi_constants import MAX_WRAPPERS
from .orders import Order, Wrapped, wrapper_of
from .program import Program, run_of
from .refusal import Refusal
from .schedule import compensated_casts, has_schedule, innermost, keeps_order, schedule_casts

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
        if one.scheduled is not None and isinstance(accumulator, Palette):
            return Refusal(
                f"{member} in a palette, whose members read terms in one order and add partial sums in order"
            )
        found.append(one)
    return tuple(found)


def program(accumulator: Accumulator, group: int | None = None) -> Program | Refusal:
    """Return the program of ``accumulator``, or a ``Refusal`` with the reason why it has none."""
    wrappers: list[Wrapped] = []
    shuffle: Shuffled | None = None
    scheduled: Accumulator | None = None
    while (run := run_of(accumulator)) is None:
        if has_schedule(accumulator):
            inner = innermost(accumulator)
            reason = _refuses_schedule(accumulator, inner, wrappers)
            if reason is not None:
                return reason
            scheduled = accumulator
            compensated = compensated_casts(accumulator, inner)
            casts = schedule_casts(accumulator, inner)
            wrappers += [Wrapped(Order.SCHEDULED, 0, cast, cast in compensated) for cast in casts]
            accumulator = inner
            continue
        wrapper = wrapper_of(accumulator, group)
        if wrapper is None:
            return Refusal(f"accumulator {accumulator} is not made of sequential chunks")
        if isinstance(accumulator, Shuffled):
            if wrappers:
                return Refusal(f"{accumulator} inside another accumulator: a permutation comes outermost and once here")
            shuffle = accumulator
        wrappers.append(wrapper)
        accumulator = accumulator.inner  # type: ignore[attr-defined]
    if len(wrappers) > MAX_WRAPPERS:
        return Refusal(f"{len(wrappers)} nested orders and roundings of partial sums: at most {MAX_WRAPPERS} here")
    return Program(**vars(run), wrappers=tuple(wrappers), shuffle=shuffle, scheduled=scheduled)


def _refuses_schedule(accumulator: Accumulator, inner: Accumulator, around: list[Wrapped]) -> Refusal | None:
    """Return why kernels do not follow the schedule of ``accumulator`` inside the wrappers ``around``, or None."""
    if any(wrapper.order != Order.SHUFFLED for wrapper in around):
        return Refusal(
            f"{accumulator} inside scaled(...), which takes sequential sums, chunks, slices and pairs of them"
        )
    counts_runs = run_of(inner) is None or isinstance(inner, (Exact, Binned))
    if inner.is_stochastic and counts_runs and not keeps_order(accumulator, inner):
        return Refusal(f"{inner} with random bits inside {accumulator}, which takes its partial sums in another order")
    return None
