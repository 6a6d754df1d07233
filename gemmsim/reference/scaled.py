"""Groups of element products without scales, then the scales; formulas of ``gemmsim.arithmetic.Scaled``."""

from __future__ import annotations

from dataclasses import replace

from ..arithmetic import Scaled
from ..formats import Cast
from .dot import Dot, implements, total
from .dyadic import Value, add, lowest_exponent, multiply, to_units

__all__ = ["times_tensor_scales"]


@implements(Scaled)
def _scaled(accumulator: Scaled, dot: Dot) -> Value:
    """S = R_outer(S + X_a X_b s) for each group; with scales of whole tensors R_outer(T S) at the end."""
    assert dot.group is not None
    starts = range(0, len(dot.products), dot.group)
    # At most 16 significant bits between 2^-300 and 2^300: exact in a float.
    factors = [dot.left_scales[k] * dot.right_scales[k] for k in starts]
    fine = dot.unit + min(lowest_exponent(factors), 0)
    combine = replace(dot, unit=fine).combining(accumulator.outer, formula="{} + {} (group times scales)")
    s: Value = 0
    for k, factor in zip(starts, factors, strict=True):
        group = total(accumulator.inner, dot.part(range(k, k + dot.group)).without_scales())
        scaled = multiply(group, to_units(factor, fine - dot.unit))
        s = combine(add(s, scaled), s, scaled)
    s = _coarser(s, dot.unit - fine)
    return times_tensor_scales(s, accumulator.outer, dot)


def times_tensor_scales(s: Value, cast: Cast, dot: Dot) -> Value:
    """``R(T_a T_b s)`` where an operand has a scale of its own for the tensor, else ``s``."""
    if dot.tensor_scales is None:
        return s
    fine = dot.unit + min(lowest_exponent([dot.tensor_scales]), 0)
    product = multiply(s, to_units(dot.tensor_scales, fine - dot.unit))
    rounded = replace(dot, unit=fine).combining(cast, formula="times the tensors' scales: {}")(product, product)
    return _coarser(rounded, dot.unit - fine)


def _coarser(x: Value, bits: int) -> Value:
    """``x`` in units 2**bits as large, of which it is a multiple."""
    return x >> bits if type(x) is int else x
