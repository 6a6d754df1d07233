"""How large the backward error |e| / (S u) of a sum of K products can be, by the order of its additions.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 4.2 and 4.3 (orders, compensation);
Blanchard, Higham, Mary, SIAM J. Sci. Comput. 42 (2020), A1541 (blocks); Connolly, Higham, Mary, SIAM J. Sci. Comput. 43
(2021), A566 (probabilistic, stochastic rounding); Goldberg, ACM Computing Surveys 23 (1991), appendix, Theorem 8 (the
recurrence of Kahan's sum); Jeannerod, Rump, SIAM J. Matrix Anal. Appl. 34 (2013), 338 (n u for every n).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gemmsim.arithmetic import Accumulator, Tree
from gemmsim.formats import FloatFormat

__all__ = ["additions", "deterministic", "probabilistic"]


_COMPENSATED = ("kahan", "neumaier", "two_sum", "fast_two_sum")
_Compensated = Callable[[Accumulator, int], "float | None"]


def additions(accumulator: Accumulator, k: int) -> float | None:
    """Roundings that a term may pass through among K terms, to first order: the height of the tree of additions.

    Sequential K; chunked n + K/n (its inner order within n); pairwise leaf + log2(K/leaf). None for orders without such
    a height here (compensated sums, integers, exact registers, instructions of chips, classes of one's own).
    """
    return _height(accumulator, k, lambda _, __: None)


def deterministic(accumulator: Accumulator, k: int) -> float | None:
    """Bound on |e| / (S u) in the absence of overflow and underflow.

    ``additions`` to first order, and twice that where a rounding is not to nearest. Compensated sums: all orders of u,
    for every K; None where the bound on |e| would reach S itself.
    """
    nearest = all(str(cast.rounding).startswith(("rne", "rna")) for cast in accumulator.casts())
    unit, factor = _unit(accumulator), 1 if nearest else 2

    def compensated(inner: Accumulator, terms: int) -> float | None:
        error = None if unit is None else _compensated(inner, terms, factor * unit, nearest)
        return None if error is None or unit is None or error >= 1 else error / (factor * unit)

    height = _height(accumulator, k, compensated)
    return None if height is None else factor * height


def _height(accumulator: Accumulator, k: int, compensated: _Compensated) -> float | None:
    """The height of the tree of additions; ``compensated`` says what counts for a compensated sum."""
    name = accumulator.name
    if name == "sequential":
        return float(k)
    if name in _COMPENSATED:
        return compensated(accumulator, k)
    inner = getattr(accumulator, "inner", None)
    if inner is None:
        return None
    if name == "shuffled":
        return _height(inner, k, compensated)
    if name not in ("chunked", "promote", "pairwise", "interleaved", "splitk") or accumulator.lost(k):
        return None
    sizes = [(count, size) for count, size in accumulator.sizes(k) if count and size]  # type: ignore[attr-defined]
    longest, totals = max((size for _, size in sizes), default=0), sum(count for count, _ in sizes)
    within = _height(inner, longest, compensated)
    return _sum(within, _of_totals(accumulator.how, totals, compensated))  # type: ignore[attr-defined]


def _compensated(accumulator: Accumulator, k: int, v: float, nearest: bool) -> float | None:
    """Bound on |e| / S of a compensated sum; every rounding has a relative error of at most v."""
    entries = 1 if getattr(accumulator, "mul", None) is None else 2  # roundings of a term before the sum
    if accumulator.name == "kahan":
        error = _kahan(k, v)
        return None if error is None else (1 + error) * (1 + v) ** (entries - 1) - 1
    return _error_sum(k, v, entries, accumulator.name == "fast_two_sum") if nearest else None


def _kahan(k: int, v: float) -> float | None:
    """3 v + 6 k v^2 and higher orders, from fl(x op y) = (x op y)(1 + d), |d| <= v, alone.

    S and C are linear in the terms. Let a and c be a term's coefficients in S - C and in C after a step. Where the term
    enters, |a - 1| <= first and |c| <= least. A later step gives |c'| <= v (1+v)^2 |a| + v (1+v)^3 |c|, and a' differs
    from a by at most (2 v^2 + v^3) |a| + (v (1+v) + v (1+v)^3) |c|. So |c| <= least max|a| if least <= 1, and |a| grows
    by at most 1 + growth in each step. The last step gives S = (a - d c)(1 + d').
    """
    first = (1 + v) * (1 + v + 3 * v**2 + v**3) - 1
    least = (1 + v) ** 2 * (2 * v + v**2)
    growth = 2 * v**2 + v**3 + v * (1 + v) * (1 + (1 + v) ** 2) * least
    steps = max(k - 2, 0) * math.log1p(growth)
    if least > 1 or steps > 1:
        return None
    return (1 + first) * math.exp(steps) * (1 + v + v * (1 + v) * least) - 1


def _error_sum(k: int, u: float, entries: int, unordered: bool) -> float:
    """2 u (``unordered``: 3 u), (k u)^2 and higher orders, for sums S of terms plus sums C of errors, to nearest.

    A rounded sum of k numbers in sequence errs by at most (k-1) u times their magnitudes, and so do the magnitudes of
    the errors together (Jeannerod, Rump). These errors are exact terms of C, but for Dekker's step with |S| < |x|,
    which adds at most u (1+u) (|x| + |error|) + u |error|.
    """
    terms, length = (1 + u) ** entries, max(k - 1, 0) * u
    errors = length * terms
    wrong = u * (1 + u) * (terms + errors) + u * errors if unordered else 0.0
    before = wrong + length * (errors + wrong)  # error of S + C, before the last rounding
    return terms - 1 + before + u * (terms + before)


def _unit(accumulator: Accumulator) -> float | None:
    """u of the narrowest format, as in the columns."""
    widths = [cast.format.p for cast in accumulator.casts() if isinstance(cast.format, FloatFormat)]
    return 2.0 ** -min(widths) if widths else None


def probabilistic(accumulator: Accumulator, k: int, delta: float = 0.05) -> float | None:
    """Bound that holds with probability 1 - delta if roundings are independent of mean zero: square root of the same.

    ``sqrt(2 log(2 / delta)) sqrt(height)``; none where roundings have one direction, whose errors do not cancel, and
    for compensated sums.
    """
    height = additions(accumulator, k)
    modes = {str(cast.rounding).partition("(")[0][:3] for cast in accumulator.casts()}
    if height is None or modes & {"rtz", "ru", "rd", "ro"}:
        return None
    return math.sqrt(2 * math.log(2 / delta) * height)


def _of_totals(how: object, totals: int, compensated: _Compensated) -> float | None:
    """Roundings that one of so many totals may pass through."""
    if how in ("pairwise", "halves"):
        return math.ceil(math.log2(max(1, totals)))
    if isinstance(how, Tree):
        return float(how.leaves)
    return _height(how, totals, compensated) if isinstance(how, Accumulator) else float(totals)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
