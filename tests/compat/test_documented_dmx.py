"""Each class, property and default that d-Matrix documents for its numerical formats, against exact arithmetic."""

from __future__ import annotations

import inspect
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from support import assert_bitwise_equal

from gemmsim.compat import dmx
from gemmsim.compat.dmx.compressor.numerical import format as module

F = Fraction


def data(*shape, seed=0):
    """Numbers of many binades, ties and zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator) * torch.exp2(torch.randint(-12, 12, shape, generator=generator))
    flat = x.view(-1)
    flat[::7] = torch.round(flat[::7] * 8) / 16
    flat[3], flat[5] = 0.0, -0.0
    return x


def floor_log2(q: Fraction) -> int:
    e = q.numerator.bit_length() - q.denominator.bit_length()
    return e if F(2) ** e <= q else e - 1


# exact values of the documented definitions, one number or one block at a time


def fixed(q, precision, fraction, clamp=True, symmetric=True):
    n = round(q * F(2) ** fraction)
    high = 2 ** (precision - 1) - 1
    if clamp:
        n = max(-high if symmetric else -high - 1, min(high, n))
    return n / F(2) ** fraction


def floating(q, mantissa, exponent, bias, flush):
    least = F(2) ** (1 - bias)
    if abs(q) < least and flush:
        return F(0)
    quantum = (
        F(2) ** (max(floor_log2(abs(q)) if q else 0, 1 - bias) - mantissa) if abs(q) >= least else least / 2**mantissa
    )
    largest = F(2) ** (2**exponent - 1 - bias) * (2 - F(1, 2**mantissa))
    return max(-largest, min(largest, round(q / quantum) * quantum))


def block_floating(block, precision, symmetric=True):
    largest = max(map(abs, block))
    if not largest:
        return block
    step, high = F(2) ** (floor_log2(largest) + 2 - precision), 2 ** (precision - 1) - 1
    found = [max(-high, min(high, round(q / step))) for q in block]
    if not symmetric:
        found = [-high - 1 if n == -high and abs(q + (high + 1) * step) <= abs(q + high * step) else n
                 for n, q in zip(found, block, strict=True)]  # fmt: skip
    return [n * step for n in found]


def mx_floating(block, mantissa, exponent, flush):
    largest = max(map(abs, block))
    scale = F(2) ** (floor_log2(largest) - 2 ** (exponent - 1)) if largest else F(1)
    return [floating(q / scale, mantissa, exponent, 2 ** (exponent - 1) - 1, flush) * scale for q in block]


def in_blocks(x, size, function):
    rows = [[F(v) for v in row] for row in x.tolist()]
    found = [[y for at in range(0, len(row), size) for y in function(row[at : at + size])] for row in rows]
    return torch.tensor([[float(y) for y in row] for row in found])


def one_by_one(x, function):
    return torch.tensor([[float(function(F(v))) for v in row] for row in x.tolist()])


# constructors and properties

CLASSES = {
    "Same": {},
    "FixedPoint": {
        "precision": None, "fraction": None, "clamp": True, "symmetric": True, "rounding": "nearest",
    },
    "FloatingPoint": {
        "mantissa": 23, "exponent": 8, "bias": None, "flush_subnormal": True, "unsigned": False, "rounding": "nearest",
    },
    "BlockFloatingPoint": {"precision": 8, "block_size": 64, "symmetric": True, "rounding": "nearest"},
    "ScaledBlockFloatingPoint": {"block_format": None, "scaler_format": None, "block_size": 64},
    "MXFP": {"element_format": None, "block_size": 32},
    "MXINT": {"precision": 8, "block_size": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_have_the_documented_arguments_and_defaults(name):
    cls = getattr(dmx, name)
    assert issubclass(cls, dmx.Format) and getattr(module, name) is cls
    found = inspect.signature(cls).parameters.values()
    documented = [p for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert {p.name: None if p.default is p.empty else p.default for p in documented} == CLASSES[name]


#: Format -> repr, bits, bytes, number, blocked.
FORMATS = {
    "same": (dmx.Same(), "SAME", None, None, None, False),
    "fixed": (dmx.FixedPoint(8, 4), "XP[8,+4](CSN)", 8.0, 1.0, None, False),
    "fixed, options": (dmx.FixedPoint(6, -1, False, False, "up"), "XP[6,-1](__U)", 6.0, 0.75, None, False),
    "float, defaults": (dmx.FloatingPoint(), "FP[1|8|23,127](FN)", 32.0, 4.0, None, False),
    "float": (dmx.FloatingPoint(3, 4), "FP[1|4|3,7](FN)", 8.0, 1.0, None, False),
    "float, unsigned": (dmx.FloatingPoint(4, 4, 9, False, True), "FP[0|4|4,9](_N)", 8.0, 9 / 8, None, False),
    "block, defaults": (dmx.BlockFloatingPoint(), "BFP[8|8]{64}(SN)", 8.125, 8.125 / 8, 10006, True),
    "block, asymmetric": (dmx.BlockFloatingPoint(4, 16, False), "BFP[4|8]{16}(_N)", 4.5, 4.5 / 8, 10024, True),
    "scaled": (
        dmx.ScaledBlockFloatingPoint(dmx.FixedPoint(4, 0), dmx.FloatingPoint(4, 4, 7, unsigned=True), 16),
        "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}", 4.5, 0.5703125, 10044, True,
    ),
    "mxfp": (dmx.MXFP(dmx.FloatingPoint(3, 4, flush_subnormal=False)), "MXFP8[E4M3]{32}", 8.25, 1.03125, None, True),
    "mxfp, flushed": (dmx.MXFP(dmx.FloatingPoint(1, 2), 16), "MXFP4[E2M1]{16}(FN)", 4.5, 4.5 / 8, None, True),
    "mxint, defaults": (dmx.MXINT(), "MXINT8{32}", 8.25, 8.25 / 8, 10007, True),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_properties_and_shorthand_both_ways(name):
    fmt, text, bits, size, number, blocked = FORMATS[name]
    assert (repr(fmt), fmt.bit_precision, fmt.bytes_per_elem, fmt.bfp_id) == (text, bits, size, number)
    assert fmt.blocked is blocked
    again = dmx.Format.from_shorthand(text)
    assert again == fmt and type(again) is type(fmt) and hash(again) == hash(fmt)
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert sum(fmt == other for other, *_ in FORMATS.values()) == 1


def test_format_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        dmx.Format()

    class Halves(dmx.Format):
        """A format of one's own: multiples of 1/2."""

        def cast(self, x, *args, **kwargs):
            return (x * 2).round() / 2

    mine = Halves()
    assert mine.cast(torch.tensor(0.7)) == 0.5 and mine.blocked is False and mine.bfp_id is None
    for attribute in ("bit_precision", "bytes_per_elem"):
        with pytest.raises(NotImplementedError, match=attribute):
            getattr(mine, attribute)
    with pytest.raises(NotImplementedError):
        dmx.Format.cast(mine, torch.ones(1))


def test_rounding_modes_map_both_ways():
    assert dict(dmx.ROUNDING_MODE) == {"U": "up", "D": "down", "N": "nearest", "S": "stochastic"}
    assert dmx.ROUNDING_MODE.inverse == {word: letter for letter, word in dmx.ROUNDING_MODE.items()}


@pytest.mark.parametrize("exponent", [1, 4, 5, 8])
def test_the_largest_representable_power_of_two_ignores_the_bias(exponent):
    bias = 127 if exponent == 8 else 3
    assert dmx.FloatingPoint(3, exponent, bias).largest_representable_power_of_two == 2.0 ** (2 ** (exponent - 1))


@pytest.mark.parametrize(
    "fmt, allowed",
    [
        (
            dmx.ScaledBlockFloatingPoint(dmx.FixedPoint(4, 0), dmx.FloatingPoint(4, 4, 7, unsigned=True)),
            "{16} with b of 4",
        ),
        (dmx.Format.from_shorthand("SBFP<XP[4,0](CSN)><FP[0|4|4,19](FN)>{16}"), "b of 4 to 18"),
        (dmx.Format.from_shorthand("SBFP<XP[8,0](CSN)><FP[0|4|4,7](FN)>{16}"), "b of 4 to 18"),
        (dmx.BlockFloatingPoint(9), "dmx.aliases"),
        (dmx.BlockFloatingPoint(8, 64, False), "dmx.aliases"),
    ],
    ids=str,
)
def test_a_format_without_a_number_says_which_have_one(fmt, allowed):
    with pytest.raises(dmx.FormatIdError) as found:
        _ = fmt.bfp_id
    assert isinstance(found.value, KeyError)
    assert str(found.value).startswith(repr(fmt)) and allowed in str(found.value) and "\n  " in str(found.value)


# values


def test_same_returns_a_copy():
    x = data(3, 4)
    y = dmx.Same().cast(x)
    assert y is not x and torch.equal(y, x)


@pytest.mark.parametrize("clamp, symmetric", [(True, True), (True, False), (False, True)])
def test_fixed_point_values(clamp, symmetric):
    x = data(4, 50)
    got = dmx.FixedPoint(8, 2, clamp, symmetric).cast(x)
    assert_bitwise_equal(got, one_by_one(x, lambda q: fixed(q, 8, 2, clamp, symmetric)) + 0.0)
    assert got.max() == (127 / 4 if clamp else x.max().mul(4).round() / 4)


@pytest.mark.parametrize("mantissa, exponent, bias", [(3, 4, 7), (3, 4, 9), (2, 5, 15), (1, 2, 1), (0, 4, 7)])
@pytest.mark.parametrize("flush", [True, False])
def test_floating_point_values(mantissa, exponent, bias, flush):
    x = data(4, 100)
    if mantissa == 0:  # whose ties go by the exponent's low bit
        x = x * (1 + 2.0**-20)
    got = dmx.FloatingPoint(mantissa, exponent, bias, flush).cast(x)
    assert_bitwise_equal(got, one_by_one(x, lambda q: floating(q, mantissa, exponent, bias, flush)) + 0.0)
    unsigned = dmx.FloatingPoint(mantissa, exponent, bias, flush, unsigned=True)
    assert_bitwise_equal(unsigned.cast(x), got.abs())


@pytest.mark.parametrize("precision, size, symmetric", [(8, 64, True), (8, 64, False), (4, 16, True), (4, 16, False)])
def test_block_floating_point_values(precision, size, symmetric):
    x = data(5, 150)
    want = in_blocks(x, size, lambda block: block_floating(block, precision, symmetric))
    assert_bitwise_equal(dmx.BlockFloatingPoint(precision, size, symmetric).cast(x, -1), want + 0.0)


def test_mx_values():
    x = data(5, 150)
    assert_bitwise_equal(dmx.MXINT().cast(x, -1), in_blocks(x, 32, lambda block: block_floating(block, 8)) + 0.0)
    for mantissa, exponent in ((3, 4), (2, 5), (1, 2), (2, 3), (3, 2)):
        for flush in (True, False):
            fmt = dmx.MXFP(dmx.FloatingPoint(mantissa, exponent, flush_subnormal=flush))
            want = in_blocks(x, 32, lambda block: mx_floating(block, mantissa, exponent, flush))  # noqa: B023
            assert_bitwise_equal(fmt.cast(x, -1), want + 0.0, context=str(fmt))


def test_the_default_element_of_mxfp_has_no_subnormals():
    fmt = dmx.MXFP(dmx.FloatingPoint(3, 4))
    assert fmt.element_format == dmx.FloatingPoint(3, 4, 7, True) and fmt.block_size == 32
    assert (fmt.scaler_format.exponent, fmt.scaler_format.mantissa, fmt.scaler_format.bias) == (8, 0, 127)
    # the largest, 2**8 under the scale 1; the least normal element and what lies below it, also where it would round up
    row = torch.tensor([256.0, 2.0**-6, 2.0**-6 - 2.0**-20, -(2.0**-7), -0.0, math.nan, math.inf, 2.0**-9])
    for dim, x in ((-1, row), (0, row[:, None]), (1, row[None])):
        got = fmt.cast(x, dim).reshape(-1)
        assert got[:5].tolist() == [256, 2.0**-6, 0, 0, 0] and got[5].isnan() and got[6] == 480 and got[7] == 0
        assert math.copysign(1, got[4]) == 1
    assert dmx.MXFP(dmx.FloatingPoint(3, 4, flush_subnormal=False)).cast(row, 0)[7] == 2.0**-9
    assert torch.equal(fmt.cast(row[:5], 0, bug_compatible=True), fmt.cast(row[:5], 0))
    short = dmx.MXFP(dmx.FloatingPoint(3, 4), 3)  # the last block has its own scale, and its own least number
    assert short.cast(torch.tensor([256.0, 1.0, 2.0**-8, 2.0**-8]), 0).tolist() == [256, 1, 0, 2.0**-8]
    with pytest.raises(ValueError, match="operand"):
        _ = fmt.operand
    assert dmx.Format.from_shorthand("MXFP8[E4M3]{32}(_N)") == dmx.aliases.MXFP8_E4M3K32 != fmt


def test_mxfp_over_the_whole_range_of_float32():
    x = torch.exp2(torch.linspace(-149, 127, 277))[:, None] * torch.tensor([1.0, 2.0**-14, 0.9 * 2.0**-14, 2.0**-16])
    fmt = dmx.MXFP(dmx.FloatingPoint(3, 4))
    assert_bitwise_equal(fmt.cast(x, -1), in_blocks(x, 32, lambda block: mx_floating(block, 3, 4, True)))


def test_scaled_blocks():
    x = data(3, 40)
    block, scaler = dmx.FixedPoint(4, 0), dmx.FloatingPoint(4, 4, 7, unsigned=True)
    got = dmx.ScaledBlockFloatingPoint(block, scaler, 16).cast(x, -1)
    for row, found in zip(x, got, strict=True):
        for at in (0, 16, 32):
            part = row[at : at + 16].numpy()
            c = np.abs(part).max() / np.float32(7)
            want = torch.from_numpy(np.clip(np.rint(part / c), -7, 7)) * scaler.cast(torch.tensor([c]))
            assert_bitwise_equal(found[at : at + 16] + 0.0, want + 0.0)


@pytest.mark.parametrize("precision", [2, 4, 8, 12])
def test_make_mantissa_asymmetric(precision):
    """By name and in cast, on blocks whose values lie around the lowest integers and their midpoint."""
    high = 2 ** (precision - 1) - 1
    x = data(40, 16) * 0.25
    step = torch.exp2(torch.arange(-20, 20)).view(-1, 1)
    edges = torch.tensor(
        [-high - 1 + 2.0**-6, -high - 0.75, -high - 0.5, -high - 0.5 + 2.0**-8, -high, -high + 0.25, high]
    )
    x = torch.cat([x.clamp(-high, high) * step / 64, edges * step, edges.flip(0) * step], 1).float()
    symmetric = dmx.BlockFloatingPoint(precision, x.shape[1]).cast(x, -1)
    want = in_blocks(x, x.shape[1], lambda block: block_floating(block, precision, False))
    got = dmx.BlockFloatingPoint.make_mantissa_asymmetric(symmetric, x, precision)
    assert_bitwise_equal(got + 0.0, want + 0.0)
    assert_bitwise_equal(dmx.BlockFloatingPoint(precision, x.shape[1], False).cast(x, -1), want + 0.0)
    assert (got != symmetric).sum() == (x <= -(high + 0.5) * step).sum() > 0
    assert_bitwise_equal(
        dmx.BlockFloatingPoint.make_mantissa_asymmetric(symmetric[:, None], x[:, None], precision)[:, 0], got
    )


def test_make_mantissa_asymmetric_has_eight_bits_unless_said_and_keeps_special_values():
    make = dmx.BlockFloatingPoint.make_mantissa_asymmetric
    x = torch.tensor([[-128.0, -127.25, 3.0, math.nan, math.inf, -0.0], [0.0] * 6])
    rounded = torch.tensor([[-127.0, -127.0, 3.0, math.nan, math.inf, -0.0], [0.0] * 6])
    got = make(rounded, x)
    assert got[0, :3].tolist() == [-128, -127, 3] and got[0, 3].isnan() and got[0, 4] == math.inf
    assert_bitwise_equal(got[:, 5], rounded[:, 5])
    assert_bitwise_equal(got[1], rounded[1])
    assert make(rounded.double(), x.bfloat16()).dtype == torch.float32 and make(x[:, :0], x[:, :0]).shape == (2, 0)
    for bad in (lambda: make(rounded, x[0]), lambda: make(torch.ones(()), torch.ones(())), lambda: make(rounded, x, 1)):
        with pytest.raises(ValueError, match="make_mantissa_asymmetric.*allowed"):
            bad()
    with pytest.raises(TypeError, match="make_mantissa_asymmetric"):
        make(rounded.int(), x)


# the scale's bias from a tensor


@pytest.mark.parametrize("mantissa", [0, 3, 4])
@pytest.mark.parametrize("exponent", [3, 4, 5])
def test_the_bias_is_the_largest_with_which_no_scale_overflows(mantissa, exponent):
    """Also where the largest scale lies between the largest number of a binade and the next binade."""
    carried = 0
    for power in (-9, 0, 3):
        for fraction in (1.0, 2 - 2.0**-mantissa, 2 - 2.0 ** -(mantissa + 1), 2 - 2.0 ** -(mantissa + 2), 2 - 2.0**-20):
            c = torch.tensor(fraction * 2.0**power)
            fmt = dmx.ScaledBlockFloatingPoint(
                dmx.FixedPoint(2, 0), dmx.FloatingPoint(mantissa, exponent, unsigned=True), 16
            )
            fmt.determine_scaler_exponent_bias_from(torch.tensor([0.25 * float(c), -float(c), math.nan, math.inf]))
            top, found = 2**exponent - 1, fmt.scaler_format.bias
            limits = {bias: F(2) ** (top - bias) * (2 - F(1, 2**mantissa)) for bias in (found, found + 1)}
            assert limits[found + 1] < F(float(c)) <= limits[found]
            carried += found != top - power
    assert carried == 9  # three fractions above the largest number of their binade


def test_the_bias_is_determined_once_and_stays_in_its_range():
    fmt = dmx.ScaledBlockFloatingPoint(dmx.FixedPoint(4, 0), dmx.FloatingPoint(4, 4, 7, unsigned=True))
    assert fmt.scaler_format_exponent_bias_determined is False
    for value, bias in ((0.0, 7), (3e38, 15 - 125), (2.0**-140, 127)):
        fmt.determine_scaler_exponent_bias_from(torch.tensor([value]))
        assert fmt.scaler_format_exponent_bias_determined is True
        assert fmt.scaler_format == dmx.FloatingPoint(4, 4, max(bias, -112), unsigned=True)
