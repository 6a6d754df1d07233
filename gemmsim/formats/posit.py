"""Posits as codebooks."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from .checks import check_int
from .codebook import CodebookFormat
from .constructor_syntax import call, integer
from .errors import format_error

__all__ = ["posit"]


@lru_cache(maxsize=64)
def posit(n: int, es: int = 2) -> CodebookFormat:
    """The posit format of ``n`` bits with ``es`` exponent bits, "posit(n,es)" in specs.

    Code 2**(n-1) is NaR (NaN here) and code 0 is zero. The others are signed integers in the order of their values. A
    number other than zero is never rounded to zero or NaR: it becomes the smallest or largest posit on its side. The
    boundary between two posits is the posit of n + 1 bits between them. A number exactly at a boundary becomes the
    posit with the even code.

    Args:
        n: 2 to 16.
        es: 0 to 4.

    Raises:
        FormatError: for other numbers.

    Source: Posit Working Group, "Standard for Posit Arithmetic (2022)", 3 and 4; es other than 2 as in Gustafson and
    Yonemoto, "Beating Floating Point at its Own Game", 2017.

    Example:
        >>> fmt = gs.formats.posit(8, 2)
        >>> fmt.max, gs.quantize(torch.tensor([1e-20, 3.3, 1e30]), fmt)
        (16777216.0, tensor([5.9605e-08, 3.2500e+00, 1.6777e+07]))
    """
    n, es = check_int("posit", "n", n, 2, 16), check_int("posit", "es", es, 0, 4)
    top = (1 << (n - 1)) - 1
    upward = [_value(code, n, es) for code in range(1, top + 1)]
    between = [Fraction(0), *(_value(2 * code + 1, n + 1, es) for code in range(1, top))]
    values = [float(-x) for x in reversed(upward)] + [0.0] + [float(x) for x in upward]
    boundaries = [float(-x) for x in reversed(between)] + [float(x) for x in between]
    # The lowest value has code -top: its place 0 is even if that code is.
    tie = "even" if top % 2 == 0 else "odd"
    return CodebookFormat(tuple(values), tuple(boundaries), tie, True, (1 << (n - 1)) + 1, f"posit({n},{es})")


def _value(code: int, n: int, es: int) -> Fraction:
    """Value of the positive posit with this code: a run of equal bits, its end, es exponent bits, a fraction."""
    bits = [code >> place & 1 for place in range(n - 2, -1, -1)]
    run = next((i for i, bit in enumerate(bits) if bit != bits[0]), len(bits))
    regime = run - 1 if bits[0] else -run
    rest = bits[run + 1 :]
    exponent = 0
    for place in range(es):
        exponent = 2 * exponent + (rest[place] if place < len(rest) else 0)
    fraction = Fraction(1)
    for place, bit in enumerate(rest[es:], start=1):
        fraction += Fraction(bit, 1 << place)
    return fraction * Fraction(2) ** ((regime << es) + exponent)


@call("posit(n[,es])")
def _parse_posit(name: str, fields: list[str]) -> CodebookFormat:
    """posit(n[,es])."""
    usage = "posit(n[,es])"
    if not 1 <= len(fields) <= 2:
        raise format_error(f"format {name!r}", usage, "Give the width, as in 'posit(8,2)'.")
    return posit(*(integer(name, usage, field) for field in fields))
