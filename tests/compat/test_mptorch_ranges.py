"""mptorch's formats at the ends of their fields: exp=1, and powers of two that float64 does not hold."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import pytest
import torch

import gemmsim as gs
from gemmsim.compat.mptorch import number, quant
from gemmsim.formats import Cast, Overflow, Rounding, SupernormalFormat, format_from_json, parse_cast
from gemmsim.reference import round_value

WIDE = [(8, 22, (1, 1), False), (8, 23, (1, 1), True), (4, 12, (2, 2), False), (8, 15, (1, 2), False), (1, 23, 1, True)]


def inputs() -> torch.Tensor:
    g = torch.Generator().manual_seed(5)
    bits = torch.randint(-(2**31), 2**31 - 1, (400,), generator=g, dtype=torch.int64).to(torch.int32)
    edges = [2.0**e * f for e in (-149, -148, -127, -126, 0, 125, 126, 127) for f in (1, 1.25, 1.5, 1.75)]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 3.4028234663852886e38, -1e-45]
    return torch.cat([bits.view(torch.float32), torch.tensor([*edges, *special]), torch.randn(50, generator=g)])


@pytest.mark.parametrize("fields", WIDE, ids=str)
def test_powers_of_two_end_where_those_of_float32_do(fields):
    e, m, binades, saturate = fields
    fmt = number.SuperNormalFloat(e, m, binades, saturate)
    assert (
        fmt.format.within_float32 and fmt.format.highest_exponent == 127 and fmt.format.lowest_exponent in (-149, -150)
    )
    x = inputs()
    for rounding in ("nearest", "truncate"):
        cast = fmt.target(rounding)
        want = [round_value(v, cast) for v in x.tolist()]
        got = quant.superfp_quantize(x, e, m, binades, rounding, saturate)
        same = [
            (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
            for a, b in zip(got.tolist(), want, strict=True)
        ]
        assert all(same), [(v, a, b) for v, a, b, s in zip(x.tolist(), got.tolist(), want, same, strict=True) if not s][
            :5
        ]


def test_inside_the_binades_they_are_floats_of_that_many_bits():
    x = inputs()
    inside = (x.abs() >= 2.0**-126) & (x.abs() < 2.0**127)
    plain = gs.quantize(x[inside], "float(p=23,emin=-126,emax=127)")
    assert torch.equal(quant.superfp_quantize(x, 8, 22, (1, 1))[inside], plain)


@pytest.mark.parametrize("fields", WIDE, ids=str)
def test_they_are_values_like_others(fields):
    fmt = number.SuperNormalFloat(*fields).format
    assert (
        parse_cast(str(Cast(fmt))).format == fmt == format_from_json(fmt.to_json()) == pickle.loads(pickle.dumps(fmt))
    )
    largest, smallest = fmt.max, fmt.smallest_subnormal
    for value in (0.0, smallest, 2 * smallest, largest, -largest, largest / 2, 2.0**fmt.first_binade):
        assert fmt.decode(fmt.encode(value)) == value
    assert not fmt.is_representable(smallest / 2) and not fmt.is_representable(2 * largest)
    assert fmt.decode_exact(fmt.encode(largest)) == Fraction(2) ** 127
    if fmt.lowest_exponent > fmt.first_binade - (fmt.lower << fmt.trailing_bits) + 1:
        with pytest.raises(gs.FormatError, match="is not used"):
            fmt.decode(1)
        with pytest.raises(gs.FormatError):
            fmt.decode(torch.tensor([1]))
    values = torch.tensor([0.0, smallest, largest, -largest, 2.0**fmt.first_binade], dtype=torch.float64)
    assert fmt.encode(values).tolist() == [fmt.encode(v) for v in values.tolist()]
    assert torch.equal(fmt.decode(fmt.encode(values)), values)
    with pytest.raises(gs.FormatError):
        fmt.encode(torch.tensor([smallest / 2], dtype=torch.float64))
    assert "2^127" in fmt.describe() or "1.7" in fmt.describe()


def test_formats_that_float64_holds_are_as_before():
    assert number.SuperNormalFloat(4, 3, 1).format == SupernormalFormat(4, 3)
    with pytest.raises(gs.FormatError, match="within_float32"):
        SupernormalFormat(8, 22)
    clipped = SupernormalFormat(8, 4, within_float32=True)
    assert (clipped.lowest_exponent, clipped.highest_exponent) == (-142, 127)
    for arguments in ((9, 3, 1), (4, 24, 1), (1, 7, (2, 2)), (4, 3, (1, 2, 3))):
        with pytest.raises(AssertionError):
            number.SuperNormalFloat(*arguments)


@pytest.mark.parametrize("man", [0, 2, 15, 23])
@pytest.mark.parametrize("saturate", [True, False])
def test_one_exponent_bit_without_subnormals(man, saturate):
    fmt = number.FloatingPoint(1, man, saturate=saturate)
    assert fmt.normal_max == 2 - 2.0**-man and fmt.normal_min == 0.5 and fmt.subnormal_min is None
    step = 2.0**-man
    values = (
        sorted({0.0, *(k * step / 2 for k in range(2**man, 2 ** (man + 1)))} | {1 + k * step for k in range(2**man)})
        if man < 5
        else []
    )
    if values:
        assert [v for v in fmt.format.values() if v >= 0] == values
    x = inputs()
    x = torch.cat([x, torch.linspace(-2.5, 2.5, 401)])
    cast = Cast(fmt.format, Rounding.RNE, Overflow.SATURATE if saturate else Overflow.INFINITY)
    want = [round_value(v, cast) for v in x.tolist()]
    got = quant.float_quantize(x, 1, man, "nearest", subnormals=False, saturate=saturate).tolist()
    assert all(a == b or (a != a and b != b) for a, b in zip(got, want, strict=True))
    assert quant.float_mm(torch.ones(2, 2), torch.ones(2, 2), man, 1, subnormals=False).max() <= fmt.normal_max
