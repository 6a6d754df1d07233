"""All 65,536 bfloat16 numbers in every format under every scale rule, codes and values.

The oracle is the rules' text on binary32 fields for scales, and for elements a search among the format's values and the
midpoints between them in float64, where everything here is exact: 8 bits times powers of two from 2^-260 to 2^260.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.formats import FixedFormat, parse

ELEMENTS = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "mxint4", "mxint2"]
RULES = ["floor", "ceil", "even", "rceil"]
FRACTION = (1 << 23) - 1


@pytest.fixture(params=cpu.ISAS)
def isa(request):
    before = cpu.isa()
    try:
        cpu.set_isa(request.param)
    except cpu.LibraryError:
        pytest.skip(f"no {request.param} here")
    yield request.param
    cpu.set_isa(before)


def blocks() -> np.ndarray:
    """(65536, 2) float32: each bfloat16, beside it a number 0 to 7 binades above, which sets the scale."""
    patterns = np.arange(65536, dtype=np.uint32)
    numbers = (patterns << 16).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        above = np.abs(numbers) * np.float32(2.0) ** (patterns & 7).astype(np.float32)
    return np.stack([numbers, above], 1)


def scale_codes(amax: np.ndarray, element, rule: str) -> np.ndarray:
    """The rules on the fields of binary32: E the exponent field, M the fraction."""
    fixed = isinstance(element, FixedFormat)
    emax, trailing = (0, element.frac) if fixed else (element.emax, element.p - 1)
    bits = amax.view(np.uint32).astype(np.int64)
    if rule == "even":
        bits = bits + (1 << 22 - trailing) & ~FRACTION
    if rule == "rceil":
        bits = (amax * np.float32(1 / element.max)).view(np.uint32).astype(np.int64)
    field, fraction = bits >> 23, bits & FRACTION
    if rule == "rceil":
        code = field + np.where(field == 0, fraction > 0x400000, fraction != 0)
    else:
        code = field + (fraction != 0 if rule == "ceil" else 0) - emax
    return np.where((field == 255) | ~np.isfinite(amax), 255, np.clip(code, 0, 255))


def nearest(v: np.ndarray, element) -> np.ndarray:
    """Index of the value nearest to |v|, of the lower bits even in a tie, of the largest beyond it."""
    values = np.array([float(x) for x in element.values() if x >= 0 and np.copysign(1, float(x)) > 0])
    values = np.unique(values)
    middle = (values[1:] + values[:-1]) / 2
    index = np.searchsorted(middle, np.abs(v), side="left")
    tie = (index < len(middle)) & (np.abs(v) == middle[np.minimum(index, len(middle) - 1)])
    return index + (tie & (index % 2 == 1)), values


def element_codes(index: np.ndarray, negative: np.ndarray, element) -> np.ndarray:
    if isinstance(element, FixedFormat):
        return np.where(negative, -index, index) & (1 << element.bits) - 1
    return index | negative.astype(np.int64) << element.bits - 1


def check(x: np.ndarray, name: str, scale: np.ndarray, v: np.ndarray, factor: np.ndarray) -> None:
    """Codes and values of ``gemmsim.mx`` against elements ``v`` under ``scale``, whose value is ``factor``."""
    fmt = parse(name)
    index, values = nearest(np.nan_to_num(v), fmt.element)
    codes = element_codes(index, np.signbit(x), fmt.element)
    nan = np.broadcast_to(np.isnan(factor)[:, None], x.shape)
    for dtype in (torch.float32, torch.bfloat16):
        t = torch.from_numpy(x).to(dtype)
        got = gs.mx.encode(t, name, packing="bytes")
        assert (got.scales.numpy()[:, 0] == scale).all(), dtype
        assert ((got.codes.numpy() == codes) | nan).all(), dtype
    with np.errstate(over="ignore", invalid="ignore"):
        want = (np.copysign(values[index], x) * factor[:, None]).astype(np.float32)
    if isinstance(fmt.element, FixedFormat):
        want = want + np.float32(0)
    found = gs.mx.quantize(torch.from_numpy(x), name).numpy()
    assert ((found.view(np.uint32) == want.view(np.uint32)) | (nan & np.isnan(found))).all()
    assert (np.isnan(found) == nan).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ELEMENTS)
def test_every_bfloat16_in_formats_with_powers_of_two(name, rule, isa):
    x, element = blocks(), parse(name).element
    with np.errstate(invalid="ignore", over="ignore"):
        scale = scale_codes(np.abs(x).max(1), element, rule)
        factor = np.where(scale == 255, np.nan, 2.0 ** (scale - 127.0))
        v = x.astype(np.float64) * 2.0 ** (127.0 - scale)[:, None]
    check(x, f"{name}/b2/{rule}", scale, v, factor)


def test_every_bfloat16_in_nvfp4(isa):
    """S = e4m3(amax / 6 from 2^-6 to 448), elements x * (1 / S), both quotients binary32's."""
    x, scaler = blocks(), parse("e4m3")
    with np.errstate(invalid="ignore", over="ignore"):
        amax = np.abs(x).max(1)
        index, values = nearest(np.clip((amax / np.float32(6)).astype(np.float64), 2.0**-6, 448.0), scaler)
        finite = np.isfinite(amax)
        factor = np.where(finite, values[np.minimum(index, len(values) - 1)], np.nan)
        v = (x * (np.float32(1) / factor.astype(np.float32))[:, None]).astype(np.float64)
    check(x, "nvfp4/b2", np.where(finite, index, 0x7F), v, factor)
