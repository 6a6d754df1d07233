"""How large the backward error |e| / (S u) of a sum of K products can be, by the order of its additions.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 4.2 and 4.3 (orders, compensation);
Blanchard, Higham, Mary, SIAM J. Sci. Comput. 42 (2020), A1541 (blocks); Connolly, Higham, Mary, SIAM J. Sci. Comput. 43
(2021), A566 (probabilistic, stochastic rounding).
"""

from __future__ import annotations

import math

from gemmsim.arithmetic import Accumulator, Tree

__all__ = ["additions", "deterministic", "probabilistic"]


def additions(accumulator: Accumulator, k: int) -> float | None:
    """Roundings that a term may pass through among K terms, to first order: the height of the tree of additions.

    Sequential K; chunked n + K/n (its inner order within n); pairwise leaf + log2(K/leaf); compensated 2. None for
    orders without such a bound here (integers, exact registers, instructions of chips, classes of one's own).
    """
    name = accumulator.name
    if name == "sequential":
        return float(k)
    if name in ("kahan", "neumaier", "two_sum", "fast_two_sum"):
        return 2.0
    inner = getattr(accumulator, "inner", None)
    if inner is None:
        return None
    if name == "shuffled":
        return additions(inner, k)
    if name not in ("chunked", "promote", "pairwise", "interleaved", "splitk") or accumulator.lost(k):
        return None
    sizes = [(count, size) for count, size in accumulator.sizes(k) if count and size]  # type: ignore[attr-defined]
    longest, totals = max((size for _, size in sizes), default=0), sum(count for count, _ in sizes)
    return _sum(additions(inner, longest), _of_totals(accumulator.how, totals))  # type: ignore[attr-defined]


def deterministic(accumulator: Accumulator, k: int) -> float | None:
    """Bound on |e| / (S u) to first order in u: ``additions``, twice that where a rounding is not to nearest."""
    height = additions(accumulator, k)
    if height is None:
        return None
    nearest = all(str(cast.rounding).startswith(("rne", "rna")) for cast in accumulator.casts())
    return height if nearest else 2 * height


def probabilistic(accumulator: Accumulator, k: int, delta: float = 0.05) -> float | None:
    """Bound that holds with probability 1 - delta if roundings are independent of mean zero: square root of the same.

    ``sqrt(2 log(2 / delta)) sqrt(height)``; none where roundings have one direction, whose errors do not cancel.
    """
    height = additions(accumulator, k)
    modes = {str(cast.rounding).partition("(")[0][:3] for cast in accumulator.casts()}
    if height is None or modes & {"rtz", "ru", "rd", "ro"}:
        return None
    return math.sqrt(2 * math.log(2 / delta) * height)


def _of_totals(how: object, totals: int) -> float | None:
    """Roundings that one of so many totals may pass through."""
    if how in ("pairwise", "halves"):
        return math.ceil(math.log2(max(1, totals)))
    if isinstance(how, Tree):
        return float(how.leaves)
    return additions(how, totals) if isinstance(how, Accumulator) else float(totals)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
