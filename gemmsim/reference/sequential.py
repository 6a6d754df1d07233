"""One register, terms in ascending k."""

from __future__ import annotations

from ..arithmetic import Sequential
from .dot import Dot, implements
from .dyadic import Value, add
from .philox import Site

__all__: list[str] = []


@implements(Sequential)
def _sequential(accumulator: Sequential, dot: Dot) -> Value:
    """s = R_add(s + q_k) for k ascending, with q_k = p_k or R_mul(p_k)."""
    if dot.of_totals:
        return dot.running(dot.products, accumulator.add)
    terms = dot.terms(accumulator.mul)
    draws = dot.draws(accumulator.add, Site.ADD)
    s: Value = 0
    if dot.addend is not None:
        if accumulator.init == "c_first":
            s = dot.addend
        else:
            # One more step, k = K, whose term is C as it is.
            draws = [*draws, *dot.draws(accumulator.add, Site.ADD, [len(terms)])]
            terms = [*terms, dot.addend]
    round_add = dot.rounder(accumulator.add)
    assert dot.ks is not None
    for i, (q, R) in enumerate(zip(terms, draws, strict=True)):
        total = s + q if type(s) is int and type(q) is int else add(s, q)
        before, s = s, round_add(dot.exact(total), R)
        if dot.log is not None:
            dot.note("add", "{} + {}", (before, q), total, s, accumulator.add, dot.ks[i] if i < len(dot.ks) else None)
    return s
