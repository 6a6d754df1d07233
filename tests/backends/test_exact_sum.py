"""exact_sum() of ``cutlass_kernels/include/gemmsim/exact.h`` keeps enough bits of a sum, for operands of at most 125 bits."""

from __future__ import annotations

import ctypes
import random
from fractions import Fraction

import pytest
from support.host import host_library

MOST_BITS = 125
TEXT = """
#include "gemmsim/exact.h"
using namespace gemmsim;
extern "C" int add(const uint64_t* mag, const int32_t* exp, const int32_t* neg, uint64_t* sum, int32_t* at) {
    Exact x[2];
    for (int i = 0; i < 2; ++i) x[i] = Exact{(u128)mag[2 * i + 1] << 64 | mag[2 * i], exp[i], neg[i] != 0, false};
    const Exact r = exact_sum(x[0], x[1]);
    sum[0] = (uint64_t)r.mag;
    sum[1] = (uint64_t)(r.mag >> 64);
    *at = r.exp;
    return r.neg | r.sticky << 1;
}
"""


def exact_sum(library: ctypes.CDLL, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int, bool, bool]:
    """Magnitude, exponent, sign and sticky bit of x + y, of a signed integer and an exponent each."""
    words = [part for value, _ in (x, y) for part in (abs(value) & (1 << 64) - 1, abs(value) >> 64)]
    mag, total, at = (ctypes.c_uint64 * 4)(*words), (ctypes.c_uint64 * 2)(), ctypes.c_int32()
    exp, neg = (ctypes.c_int32 * 2)(x[1], y[1]), (ctypes.c_int32 * 2)(x[0] < 0, y[0] < 0)
    flags = library.add(mag, exp, neg, total, ctypes.byref(at))
    return total[1] << 64 | total[0], at.value, bool(flags & 1), bool(flags & 2)


@pytest.mark.parametrize("bits", [53, 106, 107, 124, MOST_BITS])
def test_a_sum_is_exact_or_keeps_125_bits(bits):
    library, rng, lossy = host_library(TEXT, "exact_sum"), random.Random(bits), 0
    for _ in range(3000):
        values = []
        for length in rng.sample([bits, rng.choice([1, 53, bits])], 2):
            top = 1 << length - 1
            # Numbers close to a power of two cancel most.
            size = rng.choice([top, 2 * top - 1, top | rng.getrandbits(length) >> 1, top | 1])
            values.append(rng.choice([-1, 1]) * size)
        x, y = (values[0], 0), (values[1], rng.randint(-260, 260))
        mag, exp, neg, sticky = exact_sum(library, x, y)
        want = values[0] + values[1] * Fraction(2) ** y[1]
        found = abs(want) / Fraction(2) ** exp
        assert neg == (want < 0)
        assert mag < found < mag + 1 if sticky else mag == found
        assert not sticky or mag.bit_length() >= MOST_BITS
        lossy += sticky
    assert lossy > 100
