"""round_value against other people's rounding: gmpy2 (MPFR), gfloat, ml_dtypes and numpy.

ml_dtypes and numpy are asked from float32 only: from float64 they round twice.
"""

import math
import random

import gfloat
import gfloat.formats as gf
import gmpy2
import ml_dtypes
import numpy as np
import pytest

from gemmsim.formats import Cast, Overflow, Rounding, RoundingMode, parse
from gemmsim.reference import round_value

MPFR = {
    RoundingMode.RNE: gmpy2.RoundToNearest,
    RoundingMode.RTZ: gmpy2.RoundToZero,
    RoundingMode.RU: gmpy2.RoundUp,
    RoundingMode.RD: gmpy2.RoundDown,
}
GFLOAT = {
    RoundingMode.RNE: gfloat.RoundMode.TiesToEven,
    RoundingMode.RNA: gfloat.RoundMode.TiesToAway,
    RoundingMode.RTZ: gfloat.RoundMode.TowardZero,
    RoundingMode.RU: gfloat.RoundMode.TowardPositive,
    RoundingMode.RD: gfloat.RoundMode.TowardNegative,
}


def identical(got, want):
    both_nan = math.isnan(got) and math.isnan(want)
    return both_nan or (got == want and math.copysign(1, got) == math.copysign(1, want))


def random_floats(fmt, count, seed=0):
    """Floats around the whole range of ``fmt``; a third of them midpoints or next to one."""
    rng = random.Random(seed)
    low, high = max(fmt.quantum_exponent - 3, -1074), min(fmt.emax + 2, 1023)
    for _ in range(count):
        x = math.ldexp(rng.random() + 1, rng.randint(low, high))
        if rng.random() < 0.3:
            e = max(math.frexp(x)[1] - 1, fmt.emin) - fmt.p
            x = math.ldexp(2 * math.floor(math.ldexp(x, -e - 1)) + 1, e) if e >= -1074 else x
            x = rng.choice([x, math.nextafter(x, 0), math.nextafter(x, math.inf)])
        yield rng.choice([x, -x])
    top = fmt.max
    for x in (0.0, -0.0, math.inf, -math.inf, math.nan, top, -top, math.nextafter(top, math.inf)):
        yield x


@pytest.mark.parametrize("name", ["e5m10", "e8m7", "e8m23", "e6m9", "e5m2", "ieee_e4m3", "e11m20", "e8m10", "e4m14"])
@pytest.mark.parametrize("mode", MPFR, ids=str)
def test_against_mpfr(name, mode):
    fmt = parse(name)
    context = gmpy2.context(
        precision=fmt.p, emin=fmt.emin - fmt.p + 2, emax=fmt.emax + 1, subnormalize=True, round=MPFR[mode]
    )
    for x in random_floats(fmt, 3000):
        with context:
            want = float(gmpy2.mpfr(x))
        got = round_value(x, Cast(fmt, Rounding(mode)))
        assert identical(got, want), (x.hex(), got, want)


GFLOAT_FORMATS = [
    ("e4m3", gf.format_info_ocp_e4m3),
    ("e5m2", gf.format_info_ocp_e5m2),
    ("e3m2", gf.format_info_ocp_e3m2),
    ("e2m3", gf.format_info_ocp_e2m3),
    ("e2m1", gf.format_info_ocp_e2m1),
    ("fp16", gf.format_info_binary16),
    ("bf16", gf.format_info_bfloat16),
    ("fp32", gf.format_info_binary32),
] + [
    (f"binary{k}p{p}{s}{d}", (k, p, s, d))
    for k, p, s, d in [(8, 3, *"se"), (8, 4, *"sf"), (8, 1, *"se"), (8, 5, *"ue"), (6, 1, *"ue"), (4, 2, *"se")]
]


@pytest.mark.parametrize("name, info", GFLOAT_FORMATS, ids=[name for name, _ in GFLOAT_FORMATS])
@pytest.mark.parametrize("mode", GFLOAT, ids=str)
@pytest.mark.parametrize("saturate", [False, True])
def test_against_gfloat(name, info, mode, saturate):
    fmt = parse(name)
    if isinstance(info, tuple):
        k, p, sign, domain = info
        signedness = gfloat.Signedness.Signed if sign == "s" else gfloat.Signedness.Unsigned
        info = gf.format_info_p3109(k, p, signedness, gfloat.Domain.Extended if domain == "e" else gfloat.Domain.Finite)
    cast = Cast(fmt, Rounding(mode), Overflow.CLAMP if saturate else Overflow.INFINITY)
    for x in random_floats(fmt, 1500):
        # gfloat adds 1/2 in float64, which misses "just below half"; 24 bits leave it room.
        x = float(np.float32(x)) if abs(x) < 2.0**127 else x
        # gfloat refuses what a finite format cannot hold, and has no rule for negatives of unsigned formats.
        skipped = (not fmt.has_nan or name.endswith("f")) and not saturate and abs(x) > fmt.max
        if skipped or (math.isnan(x) and not fmt.has_nan) or (x < 0 and not fmt.signed):
            continue
        want = float(gfloat.round_float(info, x, GFLOAT[mode], saturate))
        if not saturate and not fmt.has_inf and want == 0:
            want = math.copysign(0.0, x) if fmt.has_negative_zero else 0.0
        got = round_value(x, cast)
        assert identical(got, want), (x.hex(), got, want)


ML_DTYPES = [
    ("e4m3", ml_dtypes.float8_e4m3fn),
    ("ieee_e4m3", ml_dtypes.float8_e4m3),
    ("e5m2", ml_dtypes.float8_e5m2),
    ("e3m4", ml_dtypes.float8_e3m4),
    ("e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
    ("e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    ("e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz),
    ("e3m2", ml_dtypes.float6_e3m2fn),
    ("e2m3", ml_dtypes.float6_e2m3fn),
    ("e2m1", ml_dtypes.float4_e2m1fn),
    ("bf16", ml_dtypes.bfloat16),
    ("fp16", np.float16),
]


@pytest.mark.parametrize("name, dtype", ML_DTYPES, ids=[name for name, _ in ML_DTYPES])
def test_against_float32_casts(name, dtype):
    fmt = parse(name)
    rng = np.random.default_rng(1)
    xs = rng.integers(0, 2**32, 2000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.array([x for x in random_floats(fmt, 2000) if not 2.0**128 <= abs(x) < math.inf], np.float32)
    xs = np.concatenate([xs, near])
    if not fmt.has_nan:
        xs = xs[~np.isnan(xs)]  # those dtypes turn NaN into a number; a NaN of ours stays one
    with np.errstate(all="ignore"):
        want = xs.astype(dtype).astype(np.float32)
    for x, y in zip(xs.tolist(), want.tolist(), strict=True):
        got = round_value(x, Cast(fmt))
        assert identical(got, y), (x.hex(), got, y)


def test_scale_format_against_ml_dtypes():
    """Positive normal numbers, no ties: float8_e8m0fnu has its own idea of zero, takes 1.2 * 2**-127 to 2**-126, and
    sends every tie up (all its significands are odd) where ours go to the even code.
    """
    rng = np.random.default_rng(2)
    xs = rng.integers(0x00800000, 0x7F800000, 3000, dtype=np.uint32).view(np.float32)
    ties = np.ldexp(np.float32(1.5), np.arange(-126, 127)).astype(np.float32)
    xs = np.concatenate([xs, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))])
    want = xs.astype(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    for x, y in zip(xs.tolist(), want.tolist(), strict=True):
        assert identical(round_value(x, Cast(parse("e8m0"))), y), x.hex()
