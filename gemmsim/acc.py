"""Constructors of accumulators: the same names and argument order as in spec strings."""

from __future__ import annotations

from .arithmetic import Sequential
from .formats import Cast, Format

__all__ = ["sequential"]


def sequential(
    add: str | Format | Cast, mul: str | Format | Cast | None = None, *, seed: int | None = None, init: str = "zero"
) -> Sequential:
    """``s = R_add(s + q_k)`` for k ascending; ``q_k = a_k * b_k`` exactly, or ``R_mul(a_k * b_k)`` if ``mul`` is given.

    ``mul=None`` is the fused multiply-add. ``seed`` fixes the random bits of stochastic roundings; None takes
    a new seed at each call. ``init`` says where the addend C enters: "zero" (there is none), "c_first", "c_last".
    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Sequential``.

    Raises:
        SpecError: for unknown formats or words.
    """
    return Sequential(add, mul, seed=seed, init=init)  # type: ignore[arg-type]
