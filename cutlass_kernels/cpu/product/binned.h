// Exact sums by exponent (Natesh et al., "MGS", 2025): one small register for each exponent of a product, spilled into a
// rounded sum before it would overflow. Scalar. Meaning: gemmsim.arithmetic.Binned.
#pragma once
#include <vector>
#include "product/registers.h"

namespace gemmsim {

// A sum of products of one exponent e: two's complement of 192 bits in units of 2^(e - 105). Products of doubles have 106
// bits and a register at most 53 more.
struct Bin {
    i128 high;
    uint64_t low;

    bool empty() const { return high == 0 && low == 0; }
    Bin plus(u128 mag, bool neg) const {
        const u128 x = neg ? (u128)low - (uint64_t)mag : (u128)low + (uint64_t)mag;
        const i128 part = (i128)(mag >> 64), carry = (i128)((x >> 64) & 1);
        return Bin{neg ? high - part - carry : high + part + carry, (uint64_t)x};
    }
    bool within(int carry) const {  // [-2^(e + carry), 2^(e + carry))
        const i128 rest = high >> (105 - 64 + carry);
        return rest == 0 || rest == -1;
    }
    void add_to(LongAccumulator& s, int e) const {
        const bool neg = high < 0;
        const uint64_t mag_low = neg ? 0 - low : low;
        const i128 mag_high = neg ? -high - (low != 0) : high;
        s.add(Exact{mag_low, e - 105, neg, false});
        s.add(Exact{(u128)mag_high, e - 105 + 64, neg, false});
    }
};

// The bins of one element at a time; empty between elements.
struct Bins {
    static constexpr int LOWEST = -2148, COUNT = 2048 - LOWEST;  // of products of doubles
    std::vector<Bin> at;
    int first = COUNT, last = -1;

    Bin& of(int e) {
        const int i = e - LOWEST;
        if (i < first) first = i;
        if (i > last) last = i;
        return at[(size_t)i];
    }
};

// Carry bits are in Register::bits. `spills` counts the additions to an element's sum: indices of their draws.
template <class T> struct BinnedTile {
    const Tile& t;
    const Request& r;
    int nr, site;
    Bins& bins;
    int64_t* spills;

    uint32_t draw(int i, int j) const {
        const int64_t index = spills[i * nr + j]++;
        return r.add.mode >= SR ? draw_step(t.seed, t.row0 + i, t.col0 + j, (uint64_t)index, site, r.add.rbits) : 0;
    }
    void spill(double& s, const Bin& b, int e, int i, int j) const {
        const uint32_t R = draw(i, j);
        if (is_nan(s) || is_inf(s)) {
            s = round_value(s, r.add, R);
            return;
        }
        LongAccumulator sum;
        sum.clear();
        sum.add(exact_value(s));
        b.add_to(sum, e);
        s = sum.round(r.add, R);
    }
    double element(int i, int j) const {
        double s = 0;
        for (int64_t k = 0; k < t.k; ++k) {
            const double a = (double)((const T*)t.a)[k * MR + i], b = (double)((const T*)t.b)[k * nr + j], p = a * b;
            if (is_nan(p) || is_inf(a) || is_inf(b)) {
                s = sum_step(p, s, r.add, draw(i, j));
                continue;
            }
            Exact x = exact_product(a, b);
            if (x.mag == 0) continue;
            const int length = bit_length(x.mag), e = x.exp + length - 1;
            x.mag <<= 106 - length;
            Bin& held = bins.of(e);
            const Bin next = held.plus(x.mag, x.neg);
            if (next.within(r.integer.bits)) {
                held = next;
            } else {
                spill(s, held, e, i, j);
                held = Bin{0, 0}.plus(x.mag, x.neg);
            }
        }
        for (int n = bins.first; n <= bins.last; ++n) {
            Bin& held = bins.at[(size_t)n];
            if (!held.empty()) spill(s, held, n + Bins::LOWEST, i, j);
            held = Bin{0, 0};
        }
        bins.first = Bins::COUNT;
        bins.last = -1;
        return s;
    }
    void run() const {
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < t.cols; ++j) ((T*)t.c)[i * nr + j] = (T)element(i, j);
    }
};

}  // namespace gemmsim
