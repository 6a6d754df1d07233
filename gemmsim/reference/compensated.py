"""Compensated sums, operation by operation as their definitions are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..arithmetic import Compensated, FastTwoSum, Kahan, Neumaier, TwoSum
from .dot import Dot, implements
from .dyadic import Value, add
from .philox import Site

__all__: list[str] = []

#: One rounding of the exact sum of two values; the j-th call in a step draws at site OPERATION + j.
Sum = Callable[[Value, Value], Value]


#: The rounded operations of a step, in order, as the definitions below name them.
_FORMULAS: dict[type[Compensated], tuple[str, ...]] = {
    Kahan: ("y = R(q - C)", "t = R(S + y)", "R(t - S)", "C = R(R(t - S) - y)"),
    Neumaier: ("x = R(q)", "t = R(S + x)", "R(hi - t)", "e = R(R(hi - t) + lo)", "C = R(C + e)"),
    TwoSum: (
        *("x = R(q)", "t = R(S + x)", "z = R(t - S)", "R(t - z)", "R(S - R(t - z))", "R(x - z)"),
        *("e = R(R(S - R(t - z)) + R(x - z))", "C = R(C + e)"),
    ),
    FastTwoSum: ("x = R(q)", "t = R(S + x)", "R(t - S)", "e = R(x - R(t - S))", "C = R(C + e)"),
}


def _steps(accumulator: Compensated, dot: Dot, operations: int) -> Iterator[tuple[Value, Sum]]:
    """Each term q with the rounded sum of its step, which is good for that many operations."""
    rounding = dot.rounder(accumulator.fmt)
    names = _FORMULAS[type(accumulator)]
    assert dot.ks is not None
    sites = [dot.draws(accumulator.fmt, Site.OPERATION + j) for j in range(operations)]
    for index, q in enumerate(dot.terms(accumulator.mul)):
        draws = iter([(name, site[index]) for name, site in zip(names, sites, strict=True)])

        def rounded(x: Value, y: Value, draws: Iterator[tuple[str, int]] = draws, k: int = dot.ks[index]) -> Value:
            name, draw = next(draws)
            exact = add(x, y)
            value = rounding(dot.exact(exact), draw)
            dot.note("add", f"{name}: {{}} + {{}}", (x, y), exact, value, accumulator.fmt, k)
            return value

        yield q, rounded


def _corrected(accumulator: Compensated, dot: Dot, s: Value, c: Value) -> Value:
    """R(S + C), whose random bits belong to the last term; +0 if there was none."""
    assert dot.ks is not None
    if not dot.products:
        return 0
    (draw,) = dot.draws(accumulator.fmt, Site.CORRECTED, dot.ks[-1:])
    exact = add(s, c)
    value = dot.rounder(accumulator.fmt)(dot.exact(exact), draw)
    dot.note("combine", "R(S + C): {} + {}", (s, c), exact, value, accumulator.fmt)
    return value


@implements(Kahan)
def _kahan(accumulator: Kahan, dot: Dot) -> Value:
    """y = R(q - C); t = R(S + y); C = R(R(t - S) - y); S = t. Result S."""
    s: Value = 0
    c: Value = 0
    for q, rounded in _steps(accumulator, dot, 4):
        y = rounded(q, _minus(c))
        t = rounded(s, y)
        grown = rounded(t, _minus(s))
        c = rounded(grown, _minus(y))
        s = t
    return s


@implements(Neumaier)
def _neumaier(accumulator: Neumaier, dot: Dot) -> Value:
    """x = R(q); t = R(S + x); C = R(C + R(R(hi - t) + lo)); S = t. Result R(S + C)."""
    s: Value = 0
    c: Value = 0
    for q, rounded in _steps(accumulator, dot, 5):
        x = rounded(q, _nothing(q))
        t = rounded(s, x)
        hi, lo = (s, x) if abs(s) >= abs(x) else (x, s)
        cut = rounded(hi, _minus(t))
        error = rounded(cut, lo)
        c = rounded(c, error)
        s = t
    return _corrected(accumulator, dot, s, c)


@implements(TwoSum)
def _two_sum(accumulator: TwoSum, dot: Dot) -> Value:
    """x = R(q); t = R(S + x); z = R(t - S); e = R(R(S - R(t - z)) + R(x - z)); C = R(C + e); S = t. Result R(S + C)."""
    s: Value = 0
    c: Value = 0
    for q, rounded in _steps(accumulator, dot, 8):
        x = rounded(q, _nothing(q))
        t = rounded(s, x)
        z = rounded(t, _minus(s))
        of_t = rounded(t, _minus(z))
        of_s = rounded(s, _minus(of_t))
        of_x = rounded(x, _minus(z))
        e = rounded(of_s, of_x)
        c = rounded(c, e)
        s = t
    return _corrected(accumulator, dot, s, c)


@implements(FastTwoSum)
def _fast_two_sum(accumulator: FastTwoSum, dot: Dot) -> Value:
    """x = R(q); t = R(S + x); e = R(x - R(t - S)); C = R(C + e); S = t. Result R(S + C)."""
    s: Value = 0
    c: Value = 0
    for q, rounded in _steps(accumulator, dot, 5):
        x = rounded(q, _nothing(q))
        t = rounded(s, x)
        taken = rounded(t, _minus(s))
        e = rounded(x, _minus(taken))
        c = rounded(c, e)
        s = t
    return _corrected(accumulator, dot, s, c)


def _minus(x: Value) -> Value:
    """-x, with the signs of zeros."""
    if type(x) is int:
        return -x or -0.0
    return 0 if x == 0 else -x


def _nothing(q: Value) -> Value:
    """The zero that changes nothing, sign of zero included: R(q) as R(q + 0)."""
    return -0.0 if type(q) is float and q == 0 else 0
