// Derives what is known of the sums of a block of outputs from facts about its operands: bounds, lowest bits, finiteness.
// The lemmas that say when a carrier's sum needs no rounding to odd are here, too. The kernel_choice*.h files use all of this.
#pragma once
#include <math.h>
#include "product/problem.h"

namespace gemmsim {

struct Facts {
    double bound;     // |s| before every rounding is below this
    double product;   // |a*b| is at most this
    double start;     // |C| is at most this, for a register that starts from C
    int lsb;          // every exact product is a multiple of 2^lsb (32767: all are zero)
    int width;        // no product has more significant bits
    int start_lsb, start_width;  // the same of C
    bool finite;
};

// The factor by which n roundings in a row increase a sum of magnitudes at most: (1+u)^n, whatever is added between them.
inline double growth(const Cast& c, double n) {
    const double u = c.mode == RNE || c.mode == RNA ? ldexp(1.0, -c.p) : c.mode == RTZ ? 0.0 : ldexp(1.0, 1 - c.p);
    return exp(u * n);
}

// The same factor for a register to which n numbers are added one by one, with u = 2^-p: 1 + nu to nearest, and 1 + 2ncu with c = 2^r
// for r random bits. Proof (docs/design/cpu.md): the register is a number of the format. So rounding its sum with x adds at most c|x| to
// the error (c = 1 to nearest). That is little if x is small.
// A sum that was rounded to float first may be three times as far from the register; the factor 4 covers this.
inline double chain_growth(const Cast& c, double n, bool rounded_before = false) {
    if (c.mode != RNE && c.mode != RNA && c.mode != SR) return growth(c, n);
    const double far = c.mode == SR ? ldexp(1.0, c.rbits + 1 - c.p) : ldexp(1.0, -c.p);
    return fmin(growth(c, n), 1 + far * n * (rounded_before ? 4 : 1));
}

// The least positive number of the format.
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
        // Stagnation: above this power of two a product is less than half an ulp and does not change the register.
        const double still = ldexp(1.0, ilogb(f.product) + 1 + r.add.p) + f.product;
        if (still < sum) sum = still;
    }
    sum += (k + 1) * least(r.add) * grows;
    if (!r.fused) {
        const double q = least(r.mul);
        sum = sum * (1 + ldexp(1.0, 1 - r.mul.p)) + k * q * grows;
        f.product = f.product * (1 + ldexp(1.0, 1 - r.mul.p)) + q;
    }
    // If an infinity becomes the largest finite value, the register can exceed every bound.
    const bool clamps =
        isfinite(r.add.inf_pos) || isfinite(r.add.inf_neg) || (!r.fused && (isfinite(r.mul.inf_pos) || isfinite(r.mul.inf_neg)));
    f.bound = !f.finite && clamps ? INFINITY : sum;
    f.lsb = a.lsb > 30000 || b.lsb > 30000 ? 32767 : a.lsb + b.lsb;
    f.width = a.width + b.width;
    return f;
}

// Whether no value underflows in this cast: inputs are multiples of 2^lsb, and the least positive number is not above 2^lsb.
inline bool no_underflow(const Cast& c, int lsb) { return lsb >= (c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1); }
inline int quantized_lsb(const Cast& c, int lsb) {
    const int q = c.emin - c.p + 1;  // also without subnormals: the smallest normal numbers have p bits
    return lsb > q ? lsb : q;
}

// Lemma A, to nearest even. Premise: both addends have at most p significant bits, and p <= (bits - 1) / 2.
// Conclusion: the carrier's nearest sum, rounded again to p bits, is the correctly rounded sum.
// Proof: if the sum is inexact in the carrier, one addend is more than bits - p binades above the other. The larger one is a number of p
// bits. The smaller one is less than half an ulp of p bits, by more than the carrier's own rounding moves the sum. So the carrier's sum
// lies on the same side of every midpoint as the exact one.
inline bool lemma_a(const Cast& add, int width, int bits) { return add.mode == RNE && width <= add.p && 2 * add.p <= bits - 1; }

// Lemma B, in every mode. Premise: all partial sums are multiples of 2^lsb and below 2^(lsb + bits), and the carrier has 2^lsb.
// Conclusion: the carrier computes them exactly, because each is 2^lsb times an integer of at most `bits` bits.
inline bool lemma_b(double bound, int lsb, int bits) { return lsb < 30000 && bound < ldexp(1.0, lsb + bits); }

}  // namespace gemmsim
