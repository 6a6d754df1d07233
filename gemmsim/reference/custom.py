"""Accumulators of a user's own class: the class's steps for one element, which are their definition.

What is around them (orders of summation, the register, the casts) is the reference's own.
"""

from __future__ import annotations

from typing import Any

from ..arithmetic import Custom, SpecError
from ..arithmetic.custom import Swapped
from .dot import Dot, implements
from .dyadic import Value, to_units

__all__: list[str] = []


@implements(Custom)
def _custom(accumulator: Custom, dot: Dot) -> Value:
    """``start``, then ``step`` for the terms in order (k counts from 0 in each run), then ``finish``."""
    return _steps(accumulator, dot, swap=False)


@implements(Swapped)
def _swapped(accumulator: Swapped, dot: Dot) -> Value:
    """The same of the inner class, b's operand given as ``a``."""
    assert isinstance(accumulator.inner, Custom)
    return _steps(accumulator.inner, dot, swap=True)


def _steps(one: Custom, dot: Dot, *, swap: bool) -> Value:
    import torch  # steps are functions of tensors; the reference itself needs none

    dtype = getattr(torch, one.numbers)

    def number(x: float) -> Any:
        if one.numbers != "int64":
            return torch.tensor([[x]], dtype=dtype)
        if abs(x) >= 2.0**63:
            raise SpecError(f"{one} of {x!r}; allowed: integers below 2**63, its numbers are int64.\n  Scale it down.")
        return torch.tensor([[int(x)]], dtype=dtype)

    assert dot.ks is not None
    state = one.start(torch.zeros(1, 1, dtype=dtype))
    for k, (x, y) in enumerate(zip(dot.left, dot.right, strict=True)):
        before = state
        a, b = (y, x) if swap else (x, y)
        state = one.step(state, number(a), number(b), k)
        if dot.log is not None:
            text = f"{type(one).__name__}.step: s = {_shown(before)}, a = {a!r}, b = {b!r}"
            value = to_units(_first(state), dot.unit)
            dot.note("step", text, (), value, value, None, dot.ks[k])
    result = to_units(_first(one.finish(state)), dot.unit)
    if one.register is None:
        return result
    rounded = dot.rounder(one.add_cast)(result, 0)
    dot.note("register", "{}", (result,), result, rounded, one.add_cast)
    return rounded


def _first(state: Any) -> float:
    """The (first) number of a state of one element."""
    tensor = state[0] if isinstance(state, tuple) else state
    return float(tensor.reshape(-1)[0])


def _shown(state: Any) -> str:
    if not isinstance(state, tuple):
        return repr(_first(state))
    return f"({', '.join(repr(_first(part)) for part in state)})"
