"""Exact sums: the long accumulator, and small registers by exponent."""

from __future__ import annotations

import math

from ..arithmetic import Binned, Exact
from .dot import Dot, implements
from .dyadic import Value, add

__all__: list[str] = []


@implements(Exact)
def _exact(accumulator: Exact, dot: Dot) -> Value:
    """R_out of the exact sum; no terms are +0."""
    if not dot.products:
        return 0
    s: Value = 0
    for i, p in enumerate(dot.noted_products()):
        before, s = s, add(s, p)
        if dot.log is not None and dot.ks is not None:
            dot.note("add", "{} + {}", (before, p), s, s, None, dot.ks[i])
    return dot.combining(accumulator.out, formula="the exact sum {}")(s, s)


@implements(Binned)
def _binned(accumulator: Binned, dot: Dot) -> Value:
    """A register for each e = floor(log2 |p|), spilled to S before it leaves [-2^(e+carry), 2^(e+carry))."""
    spill = dot.combining(accumulator.out)
    registers: dict[int, int] = {}
    s: Value = 0
    for p in dot.noted_products():
        if type(p) is not int:
            # -0 changes nothing; what is not finite goes to S at once.
            if not math.isfinite(p):
                s = spill(add(s, p), s, p)
            continue
        if p == 0:
            continue
        # Counted in units: e is the position of the leading bit.
        e = abs(p).bit_length() - 1
        held = registers.get(e, 0)
        limit = 1 << (e + accumulator.carry)
        if -limit <= held + p < limit:
            registers[e] = held + p
            dot.note("add", f"bin of 2^{e + dot.unit}: {{}} + {{}}", (held, p), held + p, held + p)
        else:
            s = spill(add(s, held), s, held)
            registers[e] = p
            dot.note("add", f"bin of 2^{e + dot.unit}, spilled, from {{}}", (p,), p, p)
    for e in sorted(registers):
        if registers[e]:
            s = spill(add(s, registers[e]), s, registers[e])
    return s
