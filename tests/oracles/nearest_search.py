"""Rounding by search: list the values of a small format, look for the neighbours, choose. Fractions only.

Knows formats by their fields and shares no code with the package.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache

NAN, INF = math.nan, math.inf


@lru_cache(maxsize=256)
def magnitudes(fmt):
    """Ascending non-negative values, continued past the largest as if the exponent had no bound, and whether odd."""
    if hasattr(fmt, "frac"):
        top = 1 << fmt.bits + 6
        return [Fraction(k) * Fraction(2) ** -fmt.frac for k in range(top)], [k % 2 == 1 for k in range(top)]
    by_code = fmt.p == 1 and (str(fmt.specials).startswith("p3109") or str(fmt.specials) == "scale")
    odd = {Fraction(0): False}
    for e in range(fmt.emin, max(fmt.emax, fmt.emin) + 7):
        for significand in range(1 << fmt.p):
            value = significand * Fraction(2) ** (e - fmt.p + 1)
            normal = significand >= 1 << (fmt.p - 1)
            if not normal and (e > fmt.emin or not fmt.subnormals):
                continue
            if by_code and normal:
                code = e - fmt.emin + (0 if str(fmt.specials) == "scale" else 1)
                odd[value] = code % 2 == 1
            else:
                odd[value] = significand % 2 == 1
    values = sorted(odd)
    return values, [odd[v] for v in values]


def round_search(x, cast, R=0):
    """``x`` (float or Fraction) rounded to ``cast``; finite results are Fractions, zeros 0.0 or -0.0."""
    fmt, mode, policy = cast.format, str(cast.rounding.mode), str(cast.overflow)
    if isinstance(x, float) and not math.isfinite(x):
        return NAN if math.isnan(x) else _past(cast, x < 0, mode, policy, from_infinity=True)
    negative = x < 0 or (isinstance(x, float) and math.copysign(1, x) < 0)
    magnitude = abs(Fraction(x))
    values, odd = magnitudes(fmt)
    at = bisect_left(values, magnitude)
    assert at < len(values), "probe outside the search list"
    if values[at] != magnitude:
        below, above = values[at - 1], values[at]
        at = (
            at if _choose_upper(magnitude, below, above, odd[at - 1], mode, negative, cast.rounding.bits, R) else at - 1
        )
    result = values[at]
    if result == 0:
        if not fmt.has_zero:
            return Fraction(2) ** fmt.emin
        return -0.0 if negative and fmt.has_negative_zero else 0.0
    signed = -result if negative else result
    if not (hasattr(fmt, "clamp") and not fmt.clamp):
        lowest = fmt.min_fraction if fmt.signed else Fraction(0)
        if signed > fmt.max_fraction or signed < lowest:
            return _past(cast, negative, mode, policy, from_infinity=False)
    return signed


def _choose_upper(x, below, above, below_is_odd, mode, negative, r, R):
    nu = (x - below) / (above - below)
    half = Fraction(1, 2)
    if mode == "rne":
        return nu > half or (nu == half and below_is_odd)
    if mode == "rna":
        return nu >= half
    if mode in ("rnd", "rnu"):
        return nu > half or (nu == half and negative == (mode == "rnd"))
    if mode in ("rtz", "ru", "rd"):
        return {"rtz": False, "ru": not negative, "rd": negative}[mode]
    if mode == "ro":
        return not below_is_odd
    if mode == "sr":
        return math.floor(nu * 2**r) + R >= 2**r
    if mode == "srb":
        return math.floor(nu * 2 ** (r + 1)) + 2 * R + 1 >= 2 ** (r + 1)
    if mode == "src":
        return round(nu * 2**r) + R >= 2**r  # Fraction rounds to even
    raise AssertionError(mode)


def _past(cast, negative, mode, policy, from_infinity):
    """The overflow table, one family of formats after the other."""
    fmt = cast.format
    if hasattr(fmt, "frac"):
        edge = None if not fmt.clamp else fmt.min_fraction if negative else fmt.max_fraction
        return _zero(edge) if fmt.clamp else (-INF if negative else INF)
    family = str(fmt.specials)
    if negative and not fmt.signed:
        if family == "scale":
            return NAN
        if policy != "infinity" or family in ("p3109_finite", "none"):
            return 0.0
        return 0.0 if mode in ("rtz", "ru") and not from_infinity else NAN
    edge = fmt.min_fraction if negative else fmt.max_fraction
    infinity = -INF if negative else INF
    if family in ("none", "p3109_finite"):
        return edge
    directed_back = mode == "rtz" or (mode == "ru" and negative) or (mode == "rd" and not negative)
    if family in ("nan_only", "fnuz", "scale"):
        if policy != "infinity" or (not from_infinity and directed_back):
            return edge
        # To odd: by the parity of the largest code, except that every significand of p = 1 (not scales) is odd.
        top_odd = fmt.max_code % 2 == 1 or (family != "scale" and fmt.p == 1)
        return edge if mode == "ro" and not from_infinity and top_odd else NAN
    if from_infinity:
        keeps = {"infinity": True, "sat": family == "ieee", "satprop": True, "clamp": False}[policy]
        return infinity if keeps else edge
    if policy != "infinity" or directed_back:
        return edge
    if mode == "ro":  # the code above the largest finite one is infinity; the odd one of the two is taken
        return edge if family == "ieee" or not fmt.signed else infinity
    return infinity


def _zero(value):
    return 0.0 if value == 0 else value


def same(got, want):
    """Equal as results: NaN equals NaN, -0.0 differs from 0.0; Fractions compare exactly."""
    if isinstance(want, float) and math.isnan(want):
        return isinstance(got, float) and math.isnan(got)
    if want == 0:
        return got == 0 and math.copysign(1, got) == math.copysign(1, want)
    return got == want


def dot_search(a, b, mul, add, draws=None):
    """Sequential dot product of floats by ``round_search``: products, IEEE specials, sums, each spelled out.

    ``draws(site, k)`` gives the random draw of product (2) or sum (3) k. Returns a float.
    """
    draws = draws or (lambda site, k: 0)
    s = 0.0
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        q = _product(x, y)
        if mul is not None:
            q = _carry(round_search(q, mul, draws(2, k)))
        s = _carry(round_search(_sum(s, q), add, draws(3, k)))
    return float(s)


def _carry(x):
    return x if isinstance(x, float) else Fraction(x)


def _product(x, y):
    if math.isnan(x) or math.isnan(y):
        return NAN
    negative = (math.copysign(1, x) < 0) != (math.copysign(1, y) < 0)
    if math.isinf(x) or math.isinf(y):
        return NAN if x == 0 or y == 0 else -INF if negative else INF
    if x == 0 or y == 0:
        return -0.0 if negative else 0.0
    return Fraction(x) * Fraction(y)


def _sum(s, q):
    special = [v for v in (s, q) if isinstance(v, float) and not math.isfinite(v)]
    if special:
        return sum(special) if not any(map(math.isnan, special)) else NAN
    total = Fraction(s) + Fraction(q)
    if total:
        return total
    both_negative_zero = all(isinstance(v, float) and v == 0 and math.copysign(1, v) < 0 for v in (s, q))
    return -0.0 if both_negative_zero else 0.0
