// This file has the registers that take exact products: the long accumulator (Kulisch) and two's complement integers.
// The code is scalar. Only two roundings can be stochastic: that of the long accumulator and that of fixed-point
// products.
#pragma once
#include <math.h>
#include "product/scalar.h"

namespace gemmsim {

// The exact sum of products of doubles: a fixed-point number of 72 limbs. Its unit is 128 binades below the smallest
// product, and it has over 200 bits of headroom at the top.
struct LongAccumulator {
    static constexpr int LIMBS = 72, UNIT = -2276;
    uint64_t limb[LIMBS];  // two's complement
    bool nan, pos_inf, neg_inf;

    void clear() {
        memset(limb, 0, sizeof limb);
        nan = pos_inf = neg_inf = false;
    }

    void add(double a, double b) {
        const double p = a * b;
        if (is_nan(p) || is_inf(a) || is_inf(b)) {
            nan = nan || is_nan(p);
            if (!is_nan(p)) (p > 0 ? pos_inf : neg_inf) = true;
            return;
        }
        add(exact_product(a, b));
    }

    void add(const Exact& x) {
        if (x.mag == 0) return;
        const int at = x.exp - UNIT, word = at >> 6, shift = at & 63;
        const u128 low_part = x.mag << shift;
        const uint64_t part[3] = {(uint64_t)low_part, (uint64_t)(low_part >> 64), shift ? (uint64_t)(x.mag >> (128 - shift)) : 0};
        unsigned carry = 0;
        for (int i = 0; i < LIMBS - word; ++i) {
            if (i >= 3 && !carry) break;
            const u128 y = i < 3 ? part[i] : 0;
            const u128 sum = x.neg ? (u128)limb[word + i] - y - carry : (u128)limb[word + i] + y + carry;
            limb[word + i] = (uint64_t)sum;
            carry = (unsigned)(sum >> 64) & 1;
        }
    }

    double round(const Cast& c, uint32_t R) {
        if (nan || (pos_inf && neg_inf)) return canonical_nan();
        if (pos_inf || neg_inf) return pos_inf ? c.inf_pos : c.inf_neg;
        const bool neg = limb[LIMBS - 1] >> 63;
        if (neg) {
            uint64_t carry = 1;
            for (int i = 0; i < LIMBS; ++i) {
                limb[i] = ~limb[i] + carry;
                carry = carry && limb[i] == 0;
            }
        }
        int top = LIMBS - 1;
        while (top >= 0 && !limb[top]) --top;
        Exact x = {0, 0, neg, false};
        if (top < 0) return round_exact(Exact{0, 0, false, false}, c, R);
        x.mag = ((u128)limb[top] << 64) | (top > 0 ? limb[top - 1] : 0);
        x.exp = UNIT + 64 * (top - 1);
        for (int i = 0; i < top - 1; ++i) x.sticky = x.sticky || limb[i] != 0;
        if (bit_length(x.mag) > 126) {  // headroom that round_exact expects
            x.sticky = x.sticky || (x.mag & 3) != 0;
            x.mag >>= 2;
            x.exp += 2;
        } else if (x.sticky && bit_length(x.mag) < 100 && top > 1) {  // shift more bits in from below
            const int up = 126 - bit_length(x.mag);
            x.mag = (x.mag << up) | (limb[top - 2] >> (64 - up));
            x.exp -= up;
            x.sticky = (limb[top - 2] << up) != 0;
            for (int i = 0; i < top - 2; ++i) x.sticky = x.sticky || limb[i] != 0;
        }
        return round_exact(x, c, R);
    }
};

typedef __int128 i128;

// A sum in two's complement. It is brought into its range after each addition, or once at the end.
struct IntegerSum {
    Register g;
    i128 low, high, s;
    int64_t overflows;  // how often it left the range

    explicit IntegerSum(const Register& r) : g(r), s(0), overflows(0) {
        low = r.is_signed ? -((i128)1 << (r.bits - 1)) : 0;
        high = low + ((i128)1 << r.bits) - 1;
    }
    // `left`: the sum is beyond the range, whatever its low 128 bits say.
    void fold(bool left = false) {
        if (s >= low && s <= high && !left) return;
        ++overflows;
        if (g.saturate) s = s < low ? low : high;
        else s = low + (i128)(((u128)s - (u128)low) & (((u128)1 << g.bits) - 1));
    }
    void add(i128 q, bool left = false) {
        s = (i128)((u128)s + (u128)q);
        if (!g.at_end) fold(left);
    }
    void jump(bool neg) {  // an infinite term
        ++overflows;
        s = neg ? low : high;
    }
    // Brings a sum of more than 128 bits into the range. Its lowest limb counts units of 1.
    void fold(const LongAccumulator& sum) {
        const bool neg = sum.limb[LongAccumulator::LIMBS - 1] >> 63;
        s = (i128)(((u128)sum.limb[1] << 64) | sum.limb[0]);
        bool left = (s < 0) != neg;
        for (int i = 2; i < LongAccumulator::LIMBS; ++i) left = left || sum.limb[i] != (neg ? ~0ull : 0ull);
        if (left && g.saturate) s = neg ? low - 1 : high + 1;
        fold(left);
    }
};

// Brings a sum of fewer than 63 bits into the register's range.
inline int64_t folded(int64_t s, const Register& g) {
    const int64_t low = g.is_signed ? -((int64_t)1 << (g.bits - 1)) : 0, high = low + ((int64_t)1 << g.bits) - 1;
    if (g.saturate) return s < low ? low : s > high ? high : s;
    return low + (int64_t)(((uint64_t)s - (uint64_t)low) & (((uint64_t)1 << g.bits) - 1));
}

// Integer bits of a product counted in units of 2^-frac.
inline int grid_bits(const Exact& x, const Register& g) { return x.mag == 0 ? 0 : bit_length(x.mag) + x.exp + g.frac; }

// A product of more bits takes every register out of its range, also after a shift by at most 63.
constexpr int BEYOND = 120;

// The product as a multiple of 2^-frac, rounded by the cast's mode. The result has what matters to a register of at
// most 53 bits: the low 128 bits if the register wraps, or a number beyond every end if it saturates.
inline i128 on_grid(const Exact& x, const Register& g, const Cast& c, uint32_t R) {
    if (x.mag == 0) return 0;
    const int drop = -g.frac - x.exp;
    u128 whole;
    if (drop <= 0) {
        if (g.saturate && grid_bits(x, g) > BEYOND) whole = (u128)1 << BEYOND;
        else whole = -drop >= 128 ? 0 : x.mag << -drop;
    } else {
        whole = drop >= 128 ? 0 : x.mag >> drop;
        const u128 rest = drop >= 128 ? x.mag : x.mag & (((u128)1 << drop) - 1);
        uint64_t frac;
        bool more = false;
        if (drop <= 64) frac = drop == 64 ? (uint64_t)rest : (uint64_t)rest << (64 - drop);
        else {
            const int below = drop - 64;
            frac = below >= 128 ? 0 : (uint64_t)(rest >> below);
            more = below >= 128 ? rest != 0 : (rest & (((u128)1 << below) - 1)) != 0;
        }
        if (round_up(c.mode, c.rbits, R, x.neg, whole & 1, frac, more)) ++whole;
    }
    return x.neg ? -(i128)whole : (i128)whole;
}

// floor(p / 2^shift) of a whole product p. Its exponent is moved so that the long accumulator's lowest limb counts
// units of 1.
inline Exact shifted(Exact x, int shift) {
    const int discarded = shift - x.exp;  // number of discarded bits of the magnitude
    if (discarded > 0) {
        const u128 below = discarded >= 128 ? x.mag : x.mag & (((u128)1 << discarded) - 1);
        x.mag = (discarded >= 128 ? 0 : x.mag >> discarded) + (x.neg && below ? 1 : 0);
        x.exp = shift;
    }
    x.exp += LongAccumulator::UNIT - shift;
    return x;
}

// One element.
template <class T> struct IntegerDot {
    const Parts<T>& parts;
    const Request& r;
    int nr, i, j;

    double a(const Tile& t, int64_t k) const { return left_of<T>(t, k, i); }
    double b(const Tile& t, int64_t k) const { return right_of<T>(t, k, j, nr); }

    void integers(IntegerSum& sum) const {  // operands are whole numbers: nothing is rounded
        const bool held = parts.while_true([&](const Tile& t) {
            for (int64_t k = 0; k < t.k; ++k) {
                const Exact x = exact_product(a(t, k), b(t, k));
                const int bits = grid_bits(x, r.integer);
                if (sum.g.at_end && bits > 90) return false;  // 128 bits might not hold the sum
                sum.add(on_grid(x, r.integer, r.mul, 0) >> r.integer.shift, bits > BEYOND);
            }
            return true;
        });
        held ? sum.fold() : long_sum(sum);
    }
    void long_sum(IntegerSum& sum) const {
        LongAccumulator exact;
        exact.clear();
        parts.each_term([&](const Tile& t, int64_t k) { exact.add(shifted(exact_product(a(t, k), b(t, k)), r.integer.shift)); });
        sum.fold(exact);
    }
    bool fixed_point(IntegerSum& sum) const {  // false: NaN
        return parts.while_true([&](const Tile& t) {
            for (int64_t k = 0; k < t.k; ++k) {
                const double x = a(t, k), y = b(t, k), p = x * y;
                if (is_nan(p) || is_inf(x) || is_inf(y)) {
                    if (is_nan(p) || !r.integer.saturate) return false;
                    sum.jump(p < 0);
                    continue;
                }
                const Exact q = exact_product(x, y);
                const uint32_t R = step_bits(r.mul, t, i, j, t.index(k), SITE_PRODUCT);
                sum.add(on_grid(q, r.integer, r.mul, R), grid_bits(q, r.integer) > BEYOND);
            }
            return true;
        });
    }
};

// If `counts` is given, it grows by how often each element's register left its range. Rows are `stride` apart.
template <class T> inline void integer_tile(const Parts<T>& parts, const Request& r, int nr, int64_t* counts, int64_t stride) {
    for (int i = 0; i < parts.base().rows; ++i)
        for (int j = 0; j < parts.base().cols; ++j) {
            IntegerSum sum(r.integer);
            const IntegerDot<T> dot = {parts, r, nr, i, j};
            bool nan = false;
            if (r.method == FIXED) nan = !dot.fixed_point(sum);
            else dot.integers(sum);
            parts.out[i * nr + j] = (T)(nan ? canonical_nan() : ldexp((double)(int64_t)sum.s, r.method == FIXED ? -r.integer.frac : 0));
            if (counts) counts[i * stride + j] += sum.overflows;
        }
}

template <class T> inline void exact_tile(const Parts<T>& parts, const Request& r, int nr, int64_t index, int site) {
    LongAccumulator s;
    const Tile& base = parts.base();
    if (parts.count() == 0) return;
    for (int i = 0; i < base.rows; ++i)
        for (int j = 0; j < base.cols; ++j) {
            s.clear();
            parts.each_term([&](const Tile& t, int64_t k) { s.add(left_of<T>(t, k, i), right_of<T>(t, k, j, nr)); });
            const uint32_t R =
                r.add.mode >= SR ? draw_step(base.seed, base.row0 + i, base.col0 + j, (uint64_t)index, site, r.add.rbits) : 0;
            parts.out[i * nr + j] = (T)s.round(r.add, R);
        }
}

}  // namespace gemmsim
