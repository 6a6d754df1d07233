// Elementary functions to more than 120 correct bits, in integers only, so that every machine gives the same bits.
//
// A Wide is a number from 0 up to 2^160 in fixed point with 256 fractional bits. Each operation truncates. A result of n operations
// therefore lies within n units of 2^-256 of the true value, times the factors that later multiply it. The longest chain here has
// about 300 operations, which leaves more than 240 correct bits below the point. For arguments so small that this is no relative
// accuracy, functions use their first term and the side on which the rest lies.
#pragma once
#include "gemmsim/exact.h"

// Marks long code that rarely runs. On a GPU it is called, so that a kernel has one copy of it and the fast path has the registers.
#if defined(__CUDACC_RTC__)
#define GEMMSIM_COLD static __device__ __noinline__
#else
#define GEMMSIM_COLD inline
#endif

namespace gemmsim::rows {

enum { FRACTION = 8, LIMBS = 13, FRACTION_BITS = 256 };

struct Wide {
    uint32_t w[LIMBS];  // least significant first
};

GEMMSIM_COLD Wide wide_integer(uint32_t n) {
    Wide r = {};
    r.w[FRACTION] = n;
    return r;
}

GEMMSIM_COLD Wide wide_constant(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f, uint32_t g, uint32_t h) {
    Wide r = {};
    const uint32_t w[FRACTION] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < FRACTION; ++i) r.w[i] = w[i];
    return r;
}

// The constants are truncated to 256 fractional bits, least significant word first. A test recomputes them.
GEMMSIM_COLD Wide wide_ln2() {
    return wide_constant(0x8BAAFA2Bu, 0x8A0D175Bu, 0x7298B62Du, 0x40F34326u, 0x03F2F6AFu, 0xC9E3B398u, 0xD1CF79ABu, 0xB17217F7u);
}
GEMMSIM_COLD Wide wide_sqrt_2_over_pi() {
    return wide_constant(0x04C73A5Du, 0x808E3690u, 0xA24E0DB1u, 0xA7053E60u, 0x5D5C717Fu, 0x7E59E280u, 0xA1B28468u, 0xCC42299Eu);
}
GEMMSIM_COLD Wide wide_inv_sqrt_2pi() {
    return wide_constant(0x02639D2Eu, 0xC0471B48u, 0x512706D8u, 0xD3829F30u, 0x2EAE38BFu, 0x3F2CF140u, 0x50D94234u, 0x662114CFu);
}

GEMMSIM_COLD Wide wide_add(const Wide& a, const Wide& b) {
    Wide r;
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; ++i) {
        carry += (uint64_t)a.w[i] + b.w[i];
        r.w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return r;
}

GEMMSIM_COLD Wide wide_sub(const Wide& a, const Wide& b) {  // a >= b
    Wide r;
    int64_t borrow = 0;
    for (int i = 0; i < LIMBS; ++i) {
        borrow += (int64_t)a.w[i] - (int64_t)b.w[i];
        r.w[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return r;
}

GEMMSIM_COLD bool wide_less(const Wide& a, const Wide& b) {
    for (int i = LIMBS - 1; i >= 0; --i)
        if (a.w[i] != b.w[i]) return a.w[i] < b.w[i];
    return false;
}

GEMMSIM_COLD bool wide_zero(const Wide& a) {
    for (int i = 0; i < LIMBS; ++i)
        if (a.w[i]) return false;
    return true;
}

GEMMSIM_COLD Wide wide_mul(const Wide& a, const Wide& b) {
    uint32_t p[2 * LIMBS] = {};
    for (int i = 0; i < LIMBS; ++i) {
        if (!a.w[i]) continue;
        uint64_t carry = 0;
        for (int j = 0; j < LIMBS; ++j) {
            carry += (uint64_t)a.w[i] * b.w[j] + p[i + j];
            p[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        p[i + LIMBS] = (uint32_t)carry;
    }
    Wide r;
    for (int i = 0; i < LIMBS; ++i) r.w[i] = p[i + FRACTION];
    return r;
}

GEMMSIM_COLD Wide wide_over(const Wide& a, uint32_t n) {  // a / n
    Wide r;
    uint64_t rest = 0;
    for (int i = LIMBS - 1; i >= 0; --i) {
        rest = rest << 32 | a.w[i];
        r.w[i] = (uint32_t)(rest / n);
        rest %= n;
    }
    return r;
}

GEMMSIM_COLD Wide wide_times(const Wide& a, uint32_t n) {
    Wide r;
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; ++i) {
        carry += (uint64_t)a.w[i] * n;
        r.w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return r;
}

// Bit number `at`, counted from the lowest.
GEMMSIM_COLD uint32_t wide_bit(const Wide& a, int at) { return at < 0 || at >= 32 * LIMBS ? 0 : (a.w[at >> 5] >> (at & 31)) & 1u; }

GEMMSIM_COLD Wide wide_halved(const Wide& a, int n) {  // a / 2^n
    Wide r = {};
    const int words = n >> 5, bits = n & 31;
    for (int i = 0; i + words < LIMBS; ++i) {
        const uint64_t high = i + words + 1 < LIMBS ? a.w[i + words + 1] : 0;
        r.w[i] = (uint32_t)((high << 32 | a.w[i + words]) >> bits);
    }
    return r;
}

GEMMSIM_COLD Wide wide_doubled(const Wide& a, int n) {  // a * 2^n
    Wide r = {};
    const int words = n >> 5, bits = n & 31;
    for (int i = LIMBS - 1; i >= words; --i) {
        const uint64_t low = i - words - 1 >= 0 ? a.w[i - words - 1] : 0;
        r.w[i] = (uint32_t)(((uint64_t)a.w[i - words] << 32 | low) << bits >> 32);
    }
    return r;
}

// a / b, which is below 2, one bit at a time.
GEMMSIM_COLD Wide wide_div(Wide a, const Wide& b) {
    Wide r = {};
    for (int at = FRACTION_BITS; at >= 0; --at) {
        if (!wide_less(a, b)) {
            a = wide_sub(a, b);
            r.w[at >> 5] |= 1u << (at & 31);
        }
        a = wide_doubled(a, 1);
    }
    return r;
}

// |x| truncated to 256 fractional bits, for x below 2^150.
GEMMSIM_COLD Wide wide_magnitude(double x) {
    uint64_t sig;
    int32_t exp;
    split(x, &sig, &exp);
    Wide r = {};
    const int at = exp + FRACTION_BITS;  // position of sig's last bit
    for (int i = 0; i < 53; ++i)
        if ((sig >> i & 1) && at + i >= 0 && at + i < 32 * LIMBS) r.w[(at + i) >> 5] |= 1u << ((at + i) & 31);
    return r;
}

// The leading 118 bits of a * 2^shift, with a sticky bit for the bits below them.
GEMMSIM_COLD Exact wide_exact(const Wide& a, int shift, bool neg) {
    int top = 32 * LIMBS - 1;
    while (top > 0 && !wide_bit(a, top)) --top;
    Exact r = {0, 0, neg, true};
    for (int i = 0; i < 118; ++i) r.mag = r.mag << 1 | wide_bit(a, top - i);
    r.exp = top - 117 - FRACTION_BITS + shift;
    return r;
}

// A value just above (or below) x in magnitude. The difference is smaller than any rounding can detect.
GEMMSIM_COLD Exact next_to(double x, bool above) {
    Exact r = exact_value(x);
    r.mag <<= 64;
    r.exp -= 64;
    if (!above) r.mag -= 1;
    r.sticky = true;
    return r;
}

// e^r for 0 <= r <= ln 2, by its series.
GEMMSIM_COLD Wide wide_exp_series(const Wide& r) {
    Wide sum = wide_integer(1), term = sum;
    for (uint32_t n = 1; n < 100 && !wide_zero(term); ++n) {
        term = wide_over(wide_mul(term, r), n);
        sum = wide_add(sum, term);
    }
    return sum;
}

struct Power {
    Wide m;  // from 1 to 2
    int exp; // times 2^exp
};

// e^x, or e^-x if `negative`, for 0 <= x < 2^20.
GEMMSIM_COLD Power wide_exp(const Wide& x, bool negative) {
    const Wide ln2 = wide_ln2();
    // k is at most x / ln 2. It is too small by at most 0.2 % or 2, and the loop below corrects it.
    uint32_t k = (uint32_t)(((uint64_t)x.w[FRACTION] << 8 | x.w[FRACTION - 1] >> 24) * 369 >> 16);
    Wide r = wide_sub(x, wide_times(ln2, k));
    while (!wide_less(r, ln2)) {
        r = wide_sub(r, ln2);
        ++k;
    }
    if (!negative) return Power{wide_exp_series(r), (int)k};
    return Power{wide_exp_series(wide_sub(ln2, r)), -(int)k - 1};
}

GEMMSIM_COLD Wide power_value(const Power& p) { return p.exp >= 0 ? wide_doubled(p.m, p.exp) : wide_halved(p.m, -p.exp); }

// 2 atanh(z) = ln((1 + z) / (1 - z)) for 0 <= z <= 1/3.
GEMMSIM_COLD Wide wide_log_series(const Wide& z) {
    const Wide square = wide_mul(z, z);
    Wide sum = z, term = z;
    for (uint32_t n = 3; n < 400 && !wide_zero(term); n += 2) {
        term = wide_mul(term, square);
        sum = wide_add(sum, wide_over(term, n));
    }
    return wide_doubled(sum, 1);
}

struct Signed {
    Wide mag;
    bool neg;
};

GEMMSIM_COLD Signed signed_sum(const Signed& a, const Signed& b) {
    if (a.neg == b.neg) return Signed{wide_add(a.mag, b.mag), a.neg};
    if (wide_less(a.mag, b.mag)) return Signed{wide_sub(b.mag, a.mag), b.neg};
    return Signed{wide_sub(a.mag, b.mag), a.neg};
}

// ln x for finite x > 0.
GEMMSIM_COLD Signed wide_log(double x) {
    uint64_t sig;
    int32_t exp;
    split(x, &sig, &exp);
    while (sig < (1ull << 52)) {
        sig <<= 1;
        --exp;
    }
    int e = exp + 52;
    uint64_t one = 1ull << 52;
    if (sig > one + (one >> 1)) {  // m from 3/4 to 3/2
        ++e;
        one <<= 1;
    }
    const bool below = sig < one;
    uint64_t num = below ? one - sig : sig - one, den = sig + one;
    Wide z = {};
    for (int i = FRACTION - 1; i >= 0; --i) {  // num < den < 2^55
        const u128 n = (u128)num << 32;
        z.w[i] = (uint32_t)(uint64_t)(n / den);
        num = (uint64_t)(n % den);
    }
    const Signed k = {wide_times(wide_ln2(), (uint32_t)(e < 0 ? -e : e)), e < 0};
    return signed_sum(k, Signed{wide_log_series(z), below});
}

}  // namespace gemmsim::rows
