"""Lists of values as formats: codes, text, boundaries; posits by the bits of the standard."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import pytest

from gemmsim.formats import NF4, Cast, CodebookFormat, FormatError, codebook, format_from_json, parse, parse_cast, posit
from gemmsim.reference.rounding import round_value

FORMATS = [
    codebook([-1, -0.5, 0, 0.25, 3]),
    codebook([1, 2, 4, 8], [1.5, 2, 8], tie="high"),
    codebook([-3, -1, 1, 3], tie="odd", nan=True),
    codebook([0.1, 0.2, -0.3], [-0.1, 0.125]),
    posit(8, 0),
    posit(6, 1),
    posit(2, 0),
    NF4,
]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_text_json_and_copies_come_back(fmt):
    assert parse(str(fmt)) == fmt == format_from_json(fmt.to_json()) and str(parse(str(fmt))) == str(fmt)
    assert pickle.loads(pickle.dumps(fmt)) == copy.deepcopy(fmt) == fmt
    for suffix in ("", "/rtz", "/ru", "/rd"):
        cast = parse_cast(f"{fmt}{suffix}")
        assert parse_cast(str(cast)) == cast == Cast.from_json(cast.to_json())
    assert str(fmt.bits) in fmt.describe()


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_codes_and_values(fmt):
    codes = fmt.codes()
    assert len(codes) == len(fmt.values()) + fmt.nan and len(set(codes)) == len(codes) and max(codes) < 1 << fmt.bits
    for code in codes:
        assert fmt.encode(fmt.decode(code)) == code
    for value in fmt.values():
        assert fmt.is_representable(value) and Fraction(value) / Fraction(2) ** fmt.quantum_exponent % 1 == 0
        assert not fmt.is_representable(math.nextafter(value, math.inf))
    assert fmt.is_representable(math.nan) == fmt.nan and not fmt.is_representable(math.inf)
    assert fmt.max == max(fmt.values()) and fmt.min == min(fmt.values())


def by_bits(x: Fraction, n: int, es: int) -> Fraction:
    """``x`` as the posit that its bits, written without end, round to (ties to the even code)."""
    if x == 0:
        return x
    if x < 0:
        return -by_bits(-x, n, es)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > x
    regime, rest = exponent >> es, exponent & ((1 << es) - 1)
    bits = "1" * (regime + 1) + "0" if regime >= 0 else "0" * -regime + "1"
    bits += format(rest, f"0{es}b") if es else ""
    fraction = x / Fraction(2) ** exponent - 1
    for _ in range(80):
        fraction *= 2
        bits += str(int(fraction >= 1))
        fraction -= fraction >= 1
    kept, beyond = int(bits[: n - 1], 2), bits[n - 1 :] + ("1" if fraction else "")
    half = beyond[0] == "1"
    kept += half and ("1" in beyond[1:] or kept & 1)
    kept = min(max(kept, 1), (1 << (n - 1)) - 1)
    return Fraction(posit(n, es).decode(kept))


@pytest.mark.parametrize("n, es", [(8, 0), (8, 1), (8, 2), (5, 2), (3, 0), (10, 3)])
def test_posits_round_as_their_bits_do(n, es):
    fmt = posit(n, es)
    cast, positive = Cast(fmt), [value for value in fmt.values() if value > 0]
    points = {Fraction(0)}
    for low, high in zip([0.0, *positive], [*positive, 4 * positive[-1]], strict=True):
        longer = (
            Fraction(posit(n + 1, es).decode(2 * fmt.encode(low) + 1)) if low and high <= fmt.max else Fraction(low)
        )
        for middle in (longer, (Fraction(low) + Fraction(high)) / 2, Fraction(low)):
            points |= {middle, middle + Fraction(high - low) / 2**40, abs(middle - Fraction(high - low) / 2**40)}
    for x in points:
        for signed in (x, -x):
            assert round_value(signed, cast) == by_bits(signed, n, es), signed


def test_known_posits():
    assert (posit(8, 2).max, posit(8, 2).smallest_normal) == (2.0**24, 2.0**-24)
    assert (posit(8, 0).max, posit(8, 0).decode(0x41), posit(8, 0).decode(0xBF)) == (64.0, 1 + 2.0**-5, -(1 + 2.0**-5))
    assert posit(16, 1).max == 2.0**28 and math.isnan(posit(16, 1).decode(0x8000))
    assert parse("posit(8)") == posit(8, 2) and posit(8, 2) != posit(8, 1)


@pytest.mark.parametrize(
    "text, words",
    [
        ("codebook(1)", "2 to 65536"),
        ("codebook(1,1)", "each value larger"),
        ("codebook(2,1)", "ascending order"),
        ("codebook(1,x)", "not a number"),
        ("codebook(1,nan)", "not a number"),
        ("codebook(1,2|3)", "one boundary between"),
        ("codebook(1,2|1.5|1.6)", "each part once"),
        ("codebook(1,1e300)", "2\\^-500 to 2\\^500"),
        ("codebook(1,1.0000000000000002)", "each value larger"),
        ("codebook(1e-15,1e15)", "half-way|at most 51"),
        ("posit(1)", "from 2 to 16"),
        ("posit(8,9)", "from 0 to 4"),
        ("posit()", "posit\\(n\\[,es\\]\\)"),
        ("posit(8,2)/sr", "rne \\(by the list's boundaries\\)"),
        ("nf4/sat", "the last value"),
        ("posit(8,2)/ftz", "floating-point formats"),
        ("codebok(1,2)", "codebook"),
    ],
)
def test_says_what_is_wrong(text, words):
    with pytest.raises(FormatError, match=words):
        parse_cast(text)


def test_takes_tensors_and_any_order():
    torch = pytest.importorskip("torch")
    assert codebook(torch.tensor([2.0, -0.0, -1.0])) == CodebookFormat((-1.0, 0.0, 2.0))
