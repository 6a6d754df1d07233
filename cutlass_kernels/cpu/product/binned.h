// This file computes exact sums by exponent (Natesh et al., "MGS", 2025). Each exponent of a product has a small
// register, which is added to a rounded sum before it would overflow ("spilled"). gemmsim.arithmetic.Binned defines the
// accumulator.
//
// Where a double holds a register (choose_binned in kernel_choice_totals.h), registers are doubles, one row of a tile
// next to each other. Otherwise registers have 192 bits, and elements are computed one by one.
#pragma once
#include <vector>
#include "product/exact_registers.h"

namespace gemmsim {

// A sum of products of exponent e, in units of 2^(e - 105): two's complement of 192 bits. Products of doubles have 106
// bits and a register has at most 53 more.
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

// The bins of one element at a time. They are empty between elements.
struct Bins {
    static constexpr int LOWEST = -2148, COUNT = 2048 - LOWEST;  // exponents of products of doubles
    std::vector<Bin> at;
    int first = COUNT, last = -1;

    Bin& of(int e) {
        const int i = e - LOWEST;
        if (i < first) first = i;
        if (i > last) last = i;
        return at[(size_t)i];
    }
};

// Register::bits has the carry bits. `spills` counts the additions to each element's sum, which are the indices of
// their draws.
template <class T> struct BinnedTile {
    const Parts<T>& parts;
    const Request& r;
    int nr, site;
    Bins& bins;
    int64_t* spills;

    uint32_t draw(int i, int j) const {
        const int64_t index = spills[i * nr + j]++;
        const Tile& t = parts.base();
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
        parts.each_term([&](const Tile& t, int64_t k) {
            const double a = left_of<T>(t, k, i), b = right_of<T>(t, k, j, nr), p = a * b;
            if (is_nan(p) || is_inf(a) || is_inf(b)) {
                s = sum_step(p, s, r.add, draw(i, j));
                return;
            }
            Exact x = exact_product(a, b);
            if (x.mag == 0) return;
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
        });
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
        for (int i = 0; i < parts.base().rows; ++i)
            for (int j = 0; j < parts.base().cols; ++j) parts.out[i * nr + j] = (T)element(i, j);
    }
};

// The same accumulator in doubles, for finite operands. The register of exponent field e holds values from -2^carry to
// 2^carry times the power of two of e, the upper end excluded. In bits that upper end is e + carry.
template <class T> struct BinnedRow {
    static constexpr uint64_t SIGN = 1ull << 63, EXPONENT = 0x7FFull << 52;
    const BinnedTile<T>& tile;
    const DoubleBins range;
    double* const at;  // range.count rows of nr registers, all zero

    __attribute__((noinline)) void spill(double& s, double b, int i, int j) const {
        const uint32_t R = tile.draw(i, j);
        s = is_nan(s) || is_inf(s) ? round_value(s, tile.r.add, R) : sum_step(b, s, tile.r.add, R);
    }
    void row(int i, double* s) const {
        const int nr = tile.nr, cols = tile.parts.base().cols;
        for (int j = 0; j < cols; ++j) s[j] = 0;
        tile.parts.each([&](const Tile& t) { add(t, i, s); });
        for (int n = 0; n < range.count; ++n)
            for (int j = 0; j < cols; ++j) {
                double& held = at[n * nr + j];
                if (held != 0) spill(s[j], held, i, j);
                held = 0;
            }
    }
    __attribute__((noinline)) void add(const Tile& t, int i, double* s) const {
        const int64_t terms = t.k, cols = t.cols, nr = tile.nr, first = range.first;
        double* const registers = at;
        const uint64_t carry = (uint64_t)tile.r.integer.bits << 52;
        const T *const rows = (const T*)t.a + i, *const columns = (const T*)t.b;
        for (int64_t k = 0; k < terms; ++k) {
            const double a = (double)rows[k * MR];
            const T* const b = columns + k * nr;
            if (a == 0) continue;
            for (int64_t j = 0; j < cols; ++j) {
                const double p = a * (double)b[j];
                const uint64_t e = bits_of(p) & EXPONENT;
                if (e == 0) continue;  // zero
                double* const held = registers + ((int64_t)(e >> 52) - first) * nr + j;
                const double next = *held + p;
                if (__builtin_expect((bits_of(next) & ~SIGN) < e + carry, 1)) {
                    *held = next;
                } else if (next == -double_of(e + carry)) {
                    *held = next;  // the lower end belongs to the register's range
                } else {
                    spill(s[j], *held, i, (int)j);
                    *held = p;
                }
            }
        }
    }
    void run() const {
        double s[64];
        const Tile& base = tile.parts.base();
        for (int i = 0; i < base.rows; ++i) {
            row(i, s);
            for (int j = 0; j < base.cols; ++j) tile.parts.out[i * tile.nr + j] = (T)s[j];
        }
    }
};

}  // namespace gemmsim
