"""Random bits of accumulators, as docs/reference/random_bits.md writes them, in Fractions."""

from fractions import Fraction

import numpy as np
import pytest
from oracles import acc_reference as ref

from gemmsim import acc
from gemmsim.reference import gemm, philox

FMT = ref.E6M5
SEED = 0xFEDCBA9876543210
K = 21


def draw(row, col, site, k, bits):
    n = 8 if bits <= 16 else 4
    words = philox((SEED % 2**32, SEED >> 32), (col, row % 2**32, k // n, site + ((row >> 32) << 8)))
    if bits > 16:
        return words[k % 4] >> (32 - bits)
    return ((words[k % 8 // 2] >> (16 * (k % 2))) & 0xFFFF) >> (16 - bits)


class Element:
    """One element's roundings by place; combining places count up."""

    def __init__(self, row, col, bits):
        self.row, self.col, self.bits, self.used = row, col, bits, {}

    def at(self, x, site, k, fmt=FMT):
        return ref.frac_round(x, fmt, "sr", self.bits, draw(self.row, self.col, site, k, self.bits))

    def next(self, x, site):
        k = self.used.get(site, 0)
        self.used[site] = k + 1
        return self.at(x, site, k)

    def sequential(self, terms):
        s = Fraction(0)
        for k, p in terms:
            s = self.at(s + p, 3, k)
        return s

    def running(self, totals, site):
        s = Fraction(0)
        for t in totals:
            s = self.next(s + t, site)
        return s

    def tree(self, v, site):
        while len(v) > 1:
            paired = [self.next(v[i] + v[i + 1], site) for i in range(0, len(v) - 1, 2)]
            v = paired + v[2 * len(paired) :]
        return v[0]


def runs(terms, n):
    return [terms[i : i + n] for i in range(0, len(terms), n)]


def kahan(e, terms):
    S = C = Fraction(0)
    for k, q in terms:
        y = e.at(q - C, 8, k)
        t = e.at(S + y, 9, k)
        C = e.at(e.at(t - S, 10, k) - y, 11, k)
        S = t
    return S


def neumaier(e, terms):
    S = C = Fraction(0)
    for k, q in terms:
        x = e.at(q, 8, k)
        t = e.at(S + x, 9, k)
        hi, lo = (S, x) if abs(S) >= abs(x) else (x, S)
        C = e.at(C + e.at(e.at(hi - t, 10, k) + lo, 11, k), 12, k)
        S = t
    return e.at(S + C, 7, terms[-1][0])


def two_sum(e, terms):
    S = C = Fraction(0)
    for k, q in terms:
        x = e.at(q, 8, k)
        t = e.at(S + x, 9, k)
        z = e.at(t - S, 10, k)
        left = e.at(S - e.at(t - z, 11, k), 12, k)
        error = e.at(left + e.at(x - z, 13, k), 14, k)
        C = e.at(C + error, 15, k)
        S = t
    return e.at(S + C, 7, terms[-1][0])


def fast_two_sum(e, terms):
    S = C = Fraction(0)
    for k, q in terms:
        x = e.at(q, 8, k)
        t = e.at(S + x, 9, k)
        C = e.at(C + e.at(x - e.at(t - S, 10, k), 11, k), 12, k)
        S = t
    return e.at(S + C, 7, terms[-1][0])


def splitk(e, terms):
    return e.running([e.next(e.sequential(part), 6) for part in runs(terms, 6)], 5)


def nested(e, terms):
    """chunked(8, pairwise(interleaved(2), 4)): sites 5, 5 + 32, 5 + 64."""

    def leaf(part):
        return e.running([e.sequential(part[lane::2]) for lane in range(min(2, len(part)))], 5 + 64)

    return e.running([e.tree([leaf(part) for part in runs(chunk, 4)], 5 + 32) for chunk in runs(terms, 8)], 5)


def shuffled_terms(terms):
    return [(i, terms[k][1]) for i, k in enumerate(acc.shuffled("e6m5", 5).order(len(terms)))]


CASES = {
    "e6m5/{0}": lambda e, t: e.sequential(t),
    "chunked(8, e6m5/{0})": lambda e, t: e.running([e.sequential(part) for part in runs(t, 8)], 5),
    "promote(e6m5/{0}, 4, e6m5/{0})": lambda e, t: e.running([e.sequential(part) for part in runs(t, 4)], 5),
    "pairwise(e6m5/{0}, 2)": lambda e, t: e.tree([e.sequential(part) for part in runs(t, 2)], 5),
    "interleaved(4, e6m5/{0})": lambda e, t: e.running([e.sequential(t[lane::4]) for lane in range(4)], 5),
    "interleaved(3, e6m5/{0}, pairwise)": lambda e, t: e.tree([e.sequential(t[lane::3]) for lane in range(3)], 5),
    "splitk(4, e6m5/{0}, e6m5/{0})": splitk,
    "shuffled(e6m5/{0}, 5)": lambda e, t: e.sequential(shuffled_terms(t)),
    "kahan(e6m5/{0})": kahan,
    "neumaier(e6m5/{0})": neumaier,
    "two_sum(e6m5/{0})": two_sum,
    "fast_two_sum(e6m5/{0})": fast_two_sum,
    "chunked(5, neumaier(e6m5/{0}))": lambda e, t: e.running([neumaier(e, part) for part in runs(t, 5)], 5),
    "exact(e6m5/{0})": lambda e, t: e.at(sum(p for _, p in t), 5, 0),
    "chunked(6, exact(e6m5/{0}))": lambda e, t: e.running(
        [e.next(sum(p for _, p in part), 5 + 32) for part in runs(t, 6)], 5
    ),
    "chunked(8, pairwise(interleaved(2, e6m5/{0}), 4))": nested,
    "chunked(3, sequential(e6m5/{0}, mul=e6m5/{0}))": lambda e, t: e.running(
        [e.sequential([(k, e.at(p, 2, k)) for k, p in part]) for part in runs(t, 3)], 5
    ),
}


@pytest.mark.parametrize("bits", [3, 11, 20])
@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("row0", [0, (1 << 32) + 9])
def test_draws_belong_to_the_written_places(text, bits, row0):
    rng = np.random.default_rng(bits)
    a = rng.integers(-63, 64, (4, K)) * 2.0 ** rng.integers(-9, 3, (4, K))
    b = rng.integers(-63, 64, (K, 5)) * 2.0 ** rng.integers(-9, 3, (K, 5))
    got = gemm(a, b, text.format(f"sr{bits}"), seed=SEED, row0=row0)
    for i in range(4):
        for j in range(5):
            terms = [(k, Fraction(a[i, k]) * Fraction(b[k, j])) for k in range(K)]
            assert got[i][j] == CASES[text](Element(row0 + i, j, bits), terms), (text, i, j)


def test_fixed_draws_at_the_product():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, K)), rng.standard_normal((K, 3))
    got = gemm(a, b, acc.fixed(30, 4, rounding="sr6"), seed=SEED)
    for i in range(3):
        for j in range(3):
            want = Fraction(0)
            for k in range(K):
                scaled = Fraction(a[i, k]) * Fraction(b[k, j]) * 16
                whole, rest = divmod(abs(scaled), 1)
                up = int(rest * 64) + draw(i, j, 2, k, 6) >= 64
                want += (whole + up) * (1 if scaled > 0 else -1)
            assert got[i][j] == want / 16


def test_binned_draws_in_order_of_its_spills():
    # Products 1 in a register below 4: the sums 4, 8, ... spill 3 at a time.
    a, b = [[1.0] * 11], [[1.0]] * 11
    fmt, s = ref.eXmY(5, 1), Fraction(0)
    for index, held in enumerate([3, 3, 3, 2]):
        s = ref.frac_round(s + held, fmt, "sr", 4, draw(0, 0, 5, index, 4))
    assert gemm(a, b, acc.binned("e5m1/sr4", carry=2), seed=SEED) == [[s]]


@pytest.mark.parametrize("seed", [0, 5, (1 << 64) - 1])
def test_permutations_sort_philox_words(seed):
    keys = []
    for k in range(300):
        low, high, _, _ = philox((seed % 2**32, seed >> 32), (k, 0, 0, 17))
        keys.append(low + (high << 32))
    order = acc.shuffled("e5m10", seed).order(300)
    assert order == sorted(range(300), key=lambda k: (keys[k], k))
