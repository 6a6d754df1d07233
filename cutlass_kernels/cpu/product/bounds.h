// What is known of the sums of a block of outputs from facts about its operands: bounds, places, and when nothing is rounded.
#pragma once
#include <math.h>
#include "product/problem.h"

namespace gemmsim {

struct Facts {
    double bound;     // |s| before every rounding stays below this
    double product;   // |a*b| is at most this
    double start;     // |C| of a register that starts from it, at most
    int lsb;          // every exact product is a multiple of 2^lsb (32767: all zero)
    int width;        // significant bits of any product, at most
    int start_lsb, start_width;  // the same of C
    bool finite;
};

// What n roundings in a row make at most of a sum of magnitudes: (1+u)^n, whatever is added between them.
inline double growth(const Cast& c, double n) {
    const double u = c.mode == RNE || c.mode == RNA ? ldexp(1.0, -c.p) : c.mode == RTZ ? 0.0 : ldexp(1.0, 1 - c.p);
    return exp(u * n);
}

// The same of a register to which n numbers are added one by one: 1 + nu to nearest, with c = 2^r 1 + 2ncu for r random bits
// (docs/design/cpu.md). A number is not far from a register that it is added to, so that a rounding adds at most that number (c of it)
// to the error, and little if it is small. Sums that are rounded to a float before may be three times as far.
inline double chain_growth(const Cast& c, double n, bool rounded_before = false) {
    if (c.mode != RNE && c.mode != RNA && c.mode != SR) return growth(c, n);
    const double far = c.mode == SR ? ldexp(1.0, c.rbits + 1 - c.p) : ldexp(1.0, -c.p);
    return fmin(growth(c, n), 1 + far * n * (rounded_before ? 4 : 1));
}

// The least positive number.
inline double least(const Cast& c) { return ldexp(1.0, c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1); }

constexpr Stats EMPTY_STATS = {0.0, 0.0, 32767, 0, 0};

inline Facts block_facts(const Request& r, const Stats& a, const Stats& b, const Stats& c) {
    Facts f;
    f.finite = !a.non_finite && !b.non_finite && !c.non_finite;
    f.start = c.max_abs;
    f.start_lsb = c.lsb;
    f.start_width = c.width;
    f.product = a.max_abs * b.max_abs;
    const double k = (double)(r.k > 0 ? r.k : 1);
    const bool fp32 = r.arithmetic == FP32;
    const double grows =
        (r.method == REGISTER ? chain_growth(r.add, k, fp32) : growth(r.add, k)) * (1 + 1e-9) * (fp32 ? exp(k * 0x1p-24) : 1);
    double sum = (a.row_sum * b.max_abs + c.max_abs) * grows;
    if (c.max_abs == 0 && r.wrapper_count == 0 && r.method == REGISTER && r.fused && f.product > 0 &&
        (r.add.mode == RNE || r.add.mode == RNA || r.add.mode == RTZ)) {
        // stagnation: above this power of two a product is less than half an ulp and no longer moves the register
        const double still = ldexp(1.0, ilogb(f.product) + 1 + r.add.p) + f.product;
        if (still < sum) sum = still;
    }
    sum += (k + 1) * least(r.add) * grows;
    if (!r.fused) {
        const double q = least(r.mul);
        sum = sum * (1 + ldexp(1.0, 1 - r.mul.p)) + k * q * grows;
        f.product = f.product * (1 + ldexp(1.0, 1 - r.mul.p)) + q;
    }
    // an infinity that a policy turns into the largest finite value lifts the register out of every bound
    const bool clamps =
        isfinite(r.add.inf_pos) || isfinite(r.add.inf_neg) || (!r.fused && (isfinite(r.mul.inf_pos) || isfinite(r.mul.inf_neg)));
    f.bound = !f.finite && clamps ? INFINITY : sum;
    f.lsb = a.lsb > 30000 || b.lsb > 30000 ? 32767 : a.lsb + b.lsb;
    f.width = a.width + b.width;
    return f;
}

// No value of this cast can leave the grid from below: all inputs are multiples of 2^lsb.
inline bool no_underflow(const Cast& c, int lsb) { return lsb >= (c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1); }
inline int quantized_lsb(const Cast& c, int lsb) {
    const int q = c.emin - c.p + 1;  // of a format without subnormals, too: its smallest numbers are p bits long
    return lsb > q ? lsb : q;
}

// Lemma A: operands of at most p <= (bits-1)/2 significant bits, nearest-even: the carrier's nearest sum, rounded
// again to p bits, is the correctly rounded sum. (A sum that is inexact in the carrier is dominated by one term,
// and the other is less than half an ulp of p bits away from it by more than the carrier's own rounding.)
inline bool lemma_a(const Cast& add, int width, int bits) { return add.mode == RNE && width <= add.p && 2 * add.p <= bits - 1; }

// Lemma B: all partial sums are multiples of 2^lsb below 2^(lsb + bits): the carrier computes them exactly, if it has 2^lsb.
inline bool lemma_b(double bound, int lsb, int bits) { return lsb < 30000 && bound < ldexp(1.0, lsb + bits); }

}  // namespace gemmsim
