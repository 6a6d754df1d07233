// This file has the loads, stores, bounds and element-wise rounding of one ISA.
#pragma once
#include "gemmsim/exact.h"
#include "gemmsim/philox.h"
#include "tiles/philox_vec.h"
#include "tiles/rounders.h"
#include "isa_table.h"

namespace gemmsim::NS {

INL float float_from(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

#if defined(__F16C__)
INL float half_to_float(uint16_t h) { return _cvtsh_ss(h); }
INL uint16_t float_to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#elif ISA_NEON
INL float half_to_float(uint16_t h) {
    __fp16 x;
    memcpy(&x, &h, 2);
    return (float)x;
}
INL uint16_t float_to_half(float x) {
    const __fp16 half = (__fp16)x;
    uint16_t h;
    memcpy(&h, &half, 2);
    return h;
}
#else
INL float half_to_float(uint16_t h) {
    const uint32_t mag = (uint32_t)(h & 0x7FFFu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
    if (mag >= 0x0F800000u) return float_from(mag | 0x7F800000u | sign);  // infinity, NaN
    const float x = float_from(mag) * 0x1p112f;  // moves the exponent's bias; exact, subnormals included
    return sign ? -x : x;
}
INL uint16_t float_to_half(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    uint32_t mag = u & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) return 0x7E00u;
    if (mag >= 0x477FF000u) return sign | 0x7C00u;  // from 65520 on
    if (mag < 0x38800000u) {                        // below 2^-14: the last place of 0.5 is half's smallest subnormal
        const float shifted = float_from(mag) + 0.5f;
        memcpy(&mag, &shifted, 4);
        return (uint16_t)(sign | (mag - 0x3F000000u));
    }
    mag += 0xFFFu + (mag >> 13 & 1u);  // nearest even
    return (uint16_t)(sign | (mag - 0x38000000u) >> 13);
}
#endif
INL float bf16_to_float(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}
INL uint16_t float_to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0u;
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
// Rounds a double to odd in float. A second rounding to at most 11 bits then gives what rounding the double would give.
INL float odd_float(double x) {
    const float f = (float)x;
    if ((double)f == x || x != x) return f;
    uint32_t u;
    memcpy(&u, &f, 4);
    if (!(u & 1)) u += __builtin_fabs((double)f) < __builtin_fabs(x) ? 1 : -1;
    float r;
    memcpy(&r, &u, 4);
    return r;
}

// Loads and saves halves without gaps, eight in one instruction where the processor has it. They return how many.
INL int64_t load_halves(const uint16_t* s, int64_t n, float* dst) {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(s + i))));
#endif
    (void)s, (void)n, (void)dst;
    return i;
}
INL int64_t load_halves(const uint16_t*, int64_t, double*) { return 0; }
INL int64_t save_halves(const float* src, int64_t n, uint16_t* dst) {
    int64_t i = 0;
#if defined(__F16C__)
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_loadu_ps(src + i), y = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        _mm_storeu_si128((__m128i*)(dst + i), _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    (void)src, (void)n, (void)dst;
    return i;
}
INL int64_t save_halves(const double*, int64_t, uint16_t*) { return 0; }

template <class T> INL void load_any(const void* src, int dtype, int64_t stride, int64_t n, T* __restrict dst) {
    if (dtype == F32) {
        const float* s = (const float*)src;
        if (stride == 1)
            for (int64_t i = 0; i < n; ++i) dst[i] = (T)s[i];
        else
            for (int64_t i = 0; i < n; ++i) dst[i] = (T)s[i * stride];
    } else if (dtype == F64) {
        const double* s = (const double*)src;
        if (stride == 1)
            for (int64_t i = 0; i < n; ++i) dst[i] = (T)s[i];
        else
            for (int64_t i = 0; i < n; ++i) dst[i] = (T)s[i * stride];
    } else {
        const uint16_t* s = (const uint16_t*)src;
        if (dtype == BF16 && stride == 1)
            for (int64_t i = 0; i < n; ++i) dst[i] = (T)bf16_to_float(s[i]);
        else if (dtype == BF16)
            for (int64_t i = 0; i < n; ++i) dst[i] = (T)bf16_to_float(s[i * stride]);
        else
            for (int64_t i = stride == 1 ? load_halves(s, n, dst) : 0; i < n; ++i) dst[i] = (T)half_to_float(s[i * stride]);
    }
}

template <class C> INL void save_any(const typename C::T* __restrict src, int64_t n, void* dst, int dtype, int64_t stride) {
    typedef typename C::T T;
    typedef typename C::V V;
    int64_t done = 0;
    if (dtype == (sizeof(T) == 4 ? F32 : F64) && stride == 1)  // a contiguous row of a result, copied except for NaN
        for (; done + C::L <= n; done += C::L) {
            const V x = load<V>(src + done);
            store((T*)dst + done, select<C>(x != x, (V)splat_u<C>(C::NAN_BITS), x));
        }
    if constexpr (sizeof(T) == 8)
        if (dtype == F32 && stride == 1)
            for (; done + C::L <= n; done += C::L) {
                const V x = load<V>(src + done);
                store((float*)dst + done, __builtin_convertvector(select<C>(x != x, (V)splat_u<C>(C::NAN_BITS), x), HalfFloats));
            }
    if (dtype == F16 && stride == 1) done = save_halves(src, n, (uint16_t*)dst);
    for (int64_t i = done; i < n; ++i) {
        T x = src[i];
        if (x != x) {
            const typename C::U q = C::NAN_BITS;
            memcpy(&x, &q, sizeof x);
        }
        if (dtype == F32) ((float*)dst)[i * stride] = (float)x;
        else if (dtype == F64) ((double*)dst)[i * stride] = (double)x;
        else if (dtype == BF16) ((uint16_t*)dst)[i * stride] = float_to_bf16(sizeof(T) == 8 ? odd_float((double)x) : (float)x);
        else ((uint16_t*)dst)[i * stride] = float_to_half(sizeof(T) == 8 ? odd_float((double)x) : (float)x);
    }
}

// Reduces the lanes of a vector to one number.
template <class V, class F> INL auto over_lanes(V v, F f) {
    auto x = v[0];
    for (size_t i = 1; i < sizeof v / sizeof v[0]; ++i) x = f(x, v[i]);
    return x;
}
template <class V> INL auto largest_lane(V v) {
    return over_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}
template <class V> INL auto least_lane(V v) {
    return over_lanes(v, [](auto a, auto b) { return a < b ? a : b; });
}
template <class V> INL auto all_bits(V v) {
    return over_lanes(v, [](auto a, auto b) { return a | b; });
}
template <class V> INL auto sum_of_lanes(V v) {
    return over_lanes(v, [](auto a, auto b) { return a + b; });
}
#if ISA_AVX512
INL int32_t largest_lane(C32::VI v) { return _mm512_reduce_max_epi32((__m512i)v); }
INL uint32_t least_lane(C32::VU v) { return _mm512_reduce_min_epu32((__m512i)v); }
INL uint32_t all_bits(C32::VU v) { return (uint32_t)_mm512_reduce_or_epi32((__m512i)v); }
INL float sum_of_lanes(C32::V v) { return _mm512_reduce_add_ps((__m512)v); }
#endif

// Bounds of a panel's magnitudes, as bit patterns: `most` is the largest, `least` the least that is not zero, minus
// one, and `bits` the OR of all. `sum` is their sum as a number.
template <class C> struct Magnitudes {
    typedef typename C::U U;
    U most, least, bits;
    typename C::T sum;

    template <class F> static INL_MEMBER void each(const typename C::T* x, int64_t n, F f) {
        int64_t i = 0;
        for (; i + C::L <= n; i += C::L) f((typename C::VU)load<typename C::V>(x + i) & ~C::SIGN);
        if (i == n) return;
        typename C::V v = {};
        memcpy(&v, x + i, (size_t)(n - i) * sizeof(typename C::T));
        f((typename C::VU)v & ~C::SIGN);
    }
    INL_MEMBER Magnitudes(const typename C::T* x, int64_t n) {
        typedef typename C::VU VU;
        typename C::VI top = {};
        VU low = splat_u<C>(~(U)0), any = {};
        typename C::V total = {};
        each(x, n, [&](VU mag) __attribute__((always_inline)) {
            const VU less = mag - 1;
            top = imax(top, (typename C::VI)mag);
            low = less < low ? less : low;
            any |= mag;
            total += (typename C::V)mag;
        });
        most = (U)largest_lane(top);
        least = least_lane(low);
        bits = all_bits(any);
        sum = sum_of_lanes(total);
    }
    // The lowest set bit of any of the numbers, as a number. All must be normal or zero.
    static INL_MEMBER typename C::T lowest(const typename C::T* x, int64_t n) {
        typedef typename C::V V;
        typedef typename C::VU VU;
        VU low = splat_u<C>(~(U)0);
        each(x, n, [&](VU mag) __attribute__((always_inline)) {
            // x minus x with its lowest bit cleared is that bit, exactly. A power of two is its own lowest bit.
            const V m = (V)mag, truncation = (V)(VU)(mag & (mag - 1));
            const V last = (typename C::VI)((VU)(mag & C::FRAC) == (VU){}) ? m : m - truncation;
            const VU less = (VU)last - 1;
            low = less < low ? less : low;
        });
        const U u = least_lane(low) + 1;
        typename C::T v;
        memcpy(&v, &u, sizeof v);
        return v;
    }
};

// Bounds of any numbers.
template <class C> static __attribute__((noinline)) void stats_of_any(const typename C::T* x, int64_t n, Stats* out) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    typedef typename C::T T;
    VI top = {}, special = {}, width = {};
    V low = splat<C>((T)__builtin_inf()), sum = {};
    const V inf = low;
    for (int64_t i = 0; i < n; i += C::L) {
        V v = {};
        if (i + C::L <= n) v = load<V>(x + i);
        else memcpy(&v, x + i, (size_t)(n - i) * sizeof(T));
        const VI all = (VI)((VU)v & ~C::SIGN), odd = all >= (VI)inf, mag = all & ~odd;  // the rest of the loop uses the finite elements
        special |= odd;
        top = imax(top, mag);
        // Value of the lowest set bit: x minus x with that bit cleared, exactly. A power of two is its own lowest bit.
        const V m = (V)mag, truncation = (V)(VI)(mag & (mag - 1));
        const V last = (VI)(((VU)mag & C::FRAC) == (VU){}) ? m : m - truncation;
        const VI zero = mag == (VI){};
        low = vmin(low, zero ? inf : last);
        width = imax(width, ((mag >> C::MB) - ((VI)last >> C::MB)) + 1 + zero);
        sum += m;
    }
    typename C::U t = 0;
    T l = (T)__builtin_inf(), s = 0;
    typename C::I wd = 0;
    for (int i = 0; i < C::L; ++i) {
        if ((typename C::U)top[i] > t) t = (typename C::U)top[i];
        if (low[i] < l) l = low[i];
        if (width[i] > wd) wd = width[i];
        s += sum[i];
        if (special[i]) out->non_finite = 1;
    }
    T mx;
    memcpy(&mx, &t, sizeof mx);
    if ((double)mx > out->max_abs) out->max_abs = (double)mx;
    const double up = (double)s * (1.0 + 1e-6 * (double)(n + 16));  // above the true sum, whatever the order of the additions
    if (up > out->row_sum) out->row_sum = up;
    if (t != 0) {
        if (l < Const<C>::power(1 - C::BIAS)) wd = C::MB + 1;  // the exponent field of a subnormal's lowest bit says too little
        if (wd > out->width) out->width = (int32_t)wd;
        const int e = __builtin_ilogb((double)l);
        if (e < out->lsb) out->lsb = e;
    }
}

// A panel of floats with more significant bits than this leaves no step exact, and its fractions are not whole numbers.
// The exact place of the lowest bit then does not matter, and a cheap lower bound of it is enough. Doubles always need
// the exact place: exact sums are sliced by it.
constexpr int MANY_BITS = 12;

template <class C> INL void stats_of(const typename C::T* x, int64_t n, Stats* out) {
    typedef typename C::U U;
    constexpr int64_t CHUNK = 4096;  // the first-level cache holds this many
    double sum = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t count = n - i < CHUNK ? n - i : CHUNK;
        const Magnitudes<C> m(x + i, count);
        if (m.most == 0) continue;
        if (m.most >= C::EXP || m.least + 1 < C::ONE) {
            stats_of_any<C>(x, n, out);
            return;
        }
        sum += (double)m.sum;
        typename C::T most;
        memcpy(&most, &m.most, sizeof most);
        if ((double)most > out->max_abs) out->max_abs = (double)most;
        const U frac = m.bits & C::FRAC;
        const int width = frac ? C::MB + 1 - __builtin_ctzll((unsigned long long)frac) : 1;
        if (width > out->width) out->width = width;
        const int least = (int)((m.least + 1) >> C::MB) - C::BIAS, lsb = C::MB < 30 && width > MANY_BITS && least < 0
                                                                             ? least - width + 1
                                                                             : __builtin_ilogb((double)Magnitudes<C>::lowest(x + i, count));
        if (lsb < out->lsb) out->lsb = lsb;
    }
    const double up = sum * (1.0 + 1e-6 * (double)(n + 16));  // above the true sum, whatever the order of the additions
    if (up > out->row_sum) out->row_sum = up;
}

// Whether round_general can round the carrier's values to `c`. If neither carrier can, vectors cannot round to `c`.
template <class C> INL bool vector_can(const gemmsim::Cast& c) {
    if (c.mode == SRB || c.mode == SRC || (c.flags & (CODE_PARITY | NO_ZERO))) return false;
    if (c.p > C::MB + 1 || c.emin < 1 - C::BIAS || c.emax > C::EMAX) return false;
    if (c.mode == SR && c.rbits > (C::MB > 30 ? 32 : C::MB)) return false;
    return c.emin - c.p + C::MB < C::BIAS;  // bit patterns of the quantum exist
}

// Stores two vectors of numbers interleaved: a0 b0 a1 b1 ...
INL void store_in_turn(C64::VU a, C64::VU b, uint32_t* to) {
#if WIDTH == 64
    store(to, GEMMSIM_SHUFFLE(a, b, C64::VU, 0, 8, 1, 9, 2, 10, 3, 11));
    store(to + WIDTH / 4, GEMMSIM_SHUFFLE(a, b, C64::VU, 4, 12, 5, 13, 6, 14, 7, 15));
#elif WIDTH == 32
    store(to, GEMMSIM_SHUFFLE(a, b, C64::VU, 0, 4, 1, 5));
    store(to + WIDTH / 4, GEMMSIM_SHUFFLE(a, b, C64::VU, 2, 6, 3, 7));
#else
    store(to, GEMMSIM_SHUFFLE(a, b, C64::VU, 0, 2));
    store(to + WIDTH / 4, GEMMSIM_SHUFFLE(a, b, C64::VU, 1, 3));
#endif
}

// The words of N * C64::L Philox calls from `call` on, in the order in which elements take them.
template <int N> INL void words_of_calls(uint64_t seed, uint64_t call, int site, uint32_t (&words)[N * 4 * C64::L]) {
    C64::VU x0[N], w[N][4];
    for (int n = 0; n < N; ++n) x0[n] = lanes64((uint32_t)call + (uint32_t)(n * C64::L), 1);
    philox_lanes<N>(x0, (uint32_t)(call >> 32), 0, (uint32_t)site, seed, w);
    for (int n = 0; n < N; ++n)
        store_in_turn((w[n][0] & 0xFFFFFFFFu) | (w[n][1] << 32), (w[n][2] & 0xFFFFFFFFu) | (w[n][3] << 32), words + n * 4 * C64::L);
}

// The draws of N * C64::L Philox calls from `call` on, `r` bits each.
template <class C, int N> INL void draws_of_calls(uint64_t seed, uint64_t call, int site, int r, typename C::U* out) {
    constexpr int WORDS = N * 4 * C64::L;
    uint32_t words[WORDS];
    words_of_calls<N>(seed, call, site, words);
    if (r > 16) {
        for (int j = 0; j < WORDS; ++j) out[j] = words[j] >> (32 - r);
        return;
    }
    uint16_t halves[2 * WORDS];
    memcpy(halves, words, sizeof words);  // little-endian: a word's low half is its first draw
    for (int j = 0; j < 2 * WORDS; ++j) out[j] = (uint32_t)halves[j] >> (16 - r);
}

template <class C> INL void draws_for(uint64_t seed, uint64_t index0, int64_t n, int site, int r, typename C::U* out) {
    const int per = draws_per_call(r);
    int64_t i = 0;
    while (i < n) {
        const uint64_t call = (index0 + i) / per;
        const int skip = (int)((index0 + i) % per);
        const int64_t many = (int64_t)per * C64::L;
        if (skip == 0 && n - i >= 2 * many && (uint32_t)call <= 0xFFFFFFFFu - 2 * C64::L) {
            draws_of_calls<C, 2>(seed, call, site, r, out + i);
            i += 2 * many;
            continue;
        }
        const Words4 x = philox((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)call, (uint32_t)(call >> 32), 0, (uint32_t)site);
        for (int j = skip; j < per && i < n; ++j) out[i++] = pick(x, j, r);
    }
}

// Stochastic rounding of zeros and of the format's normal numbers: an addition to the bits and a mask.
template <class C> struct Draw {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    VU keep, up, down, normal, zero;  // zero: 1 where zeros keep their signs, so that they need nothing else
    VI end;

    Draw(const Const<C>& k, const gemmsim::Cast& c)
        : keep(splat_u<C>(~(((typename C::U)1 << (C::MB + 1 - c.p)) - 1))),
          up(splat_u<C>((typename C::U)(C::MB + 1 - c.p > c.rbits ? C::MB + 1 - c.p - c.rbits : 0))),
          down(splat_u<C>((typename C::U)(c.rbits > C::MB + 1 - c.p ? c.rbits - (C::MB + 1 - c.p) : 0))), normal(k.normal_from),
          zero(splat_u<C>((typename C::U)k.neg_zero)), end((VI)vmin(k.hi, -k.lo)) {}
    INL_MEMBER VI other(V x) const {
        const VU mag = (VU)x & ~C::SIGN;
        return ((VI)mag > end) | (VI)(mag - zero < normal - zero);
    }
    INL_MEMBER V round(V x, VU R) const { return (V)(((VU)x + (R << up >> down)) & keep); }
};

// Rounds a vector by a stochastic cast.
template <class C> INL typename C::V round_drawn(typename C::V x, const Const<C>& k, const Draw<C>& simple, typename C::VU R) {
#if !ISA_BASE
    if (__builtin_expect(none_set(simple.other(x)), 1)) return simple.round(x, R);
#endif
    return round_general<C, true>(x, k, R);
}

// Applies `f` to vectors of x, and of `draws` unless these are null, and stores the results in y.
template <class C, class F> INL void each_vector(const typename C::T* x, typename C::T* y, int64_t n, const typename C::U* draws, F f) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    int64_t i = 0;
    for (; i + C::L <= n; i += C::L) store(y + i, f(load<V>(x + i), draws ? load<VU>(draws + i) : VU{}));
    if (i == n) return;
    const size_t rest = (size_t)(n - i) * sizeof(typename C::T);
    V v = {};
    VU R = {};
    memcpy(&v, x + i, rest);
    if (draws) memcpy(&R, draws + i, rest);
    const V r = f(v, R);
    memcpy(y + i, &r, rest);
}

// Reduces the modes SRB and SRC to SR. SRB is SR with the random number 2 R + 1 of one more bit, because R and a half
// carries exactly where 2 R + 1 does. SRC is SR of the value that has first been rounded to the quantum of the random
// bits (finer_of).
inline gemmsim::Cast simply_stochastic(gemmsim::Cast c) {
    if (c.mode == SRB) ++c.rbits;
    c.mode = SR;
    return c;
}

// Nearest even to multiples of 2^-r quanta, where r is the number of random bits. A value past the end of the format
// stays past it, and stays finite.
inline gemmsim::Cast finer_of(gemmsim::Cast c) {
    const double end = scale2(1, c.emax + 1), inf = __builtin_inf();
    return gemmsim::Cast{c.p + c.rbits, c.emin, RNE, 0, NEG_ZERO | PRESENT, c.emax + 1, -end, end, -end, end, -inf, inf};
}

// Whether the carrier can round its own values by this stochastic mode (SR, SRB or SRC).
template <class C> INL bool vectors_can_draw(const gemmsim::Cast& c) {
    if (c.mode < SR || !vector_can<C>(simply_stochastic(c))) return false;
    const int bits = c.p + c.rbits;
    return c.mode != SRC || (!(c.flags & NO_SUBNORMALS) && bits <= C::MB + 1 && c.emax + 1 <= C::EMAX && c.emin - bits + 1 >= 1 - C::BIAS);
}

template <class C> INL void round_by_draws(typename C::T* x, int64_t n, const gemmsim::Cast& c, uint64_t seed, uint64_t index0, int site) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    const gemmsim::Cast plain = simply_stochastic(c);
    const Const<C> k = Const<C>::make(plain), finer = Const<C>::make(c.mode == SRC ? finer_of(c) : plain);
    const Draw<C> simple(k, plain);
    constexpr int64_t CHUNK = 512;
    typename C::U draws[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        draws_for<C>(seed, index0 + i, m, site, c.rbits, draws);
        if (c.mode == SRB)
            for (int64_t j = 0; j < m; ++j) draws[j] = 2 * draws[j] + 1;
        if (c.mode == SRC)
            each_vector<C>(x + i, x + i, m, nullptr,
                           [&](V v, VU R) __attribute__((always_inline)) { return round_general<C, false>(v, finer, R); });
        each_vector<C>(x + i, x + i, m, draws, [&](V v, VU R) __attribute__((always_inline)) { return round_drawn<C>(v, k, simple, R); });
    }
}

template <class C> INL void round_vectors(typename C::T* x, int64_t n, const gemmsim::Cast& c, uint64_t seed, uint64_t index0, int site) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    if (c.mode >= SR) return round_by_draws<C>(x, n, c, seed, index0, site);
    const Const<C> k = Const<C>::make(c);
    each_vector<C>(x, x, n, nullptr, [&](V v, VU R) __attribute__((always_inline)) { return round_general<C, false>(v, k, R); });
}

template <class T> INL void round_scalars(T* x, int64_t n, const gemmsim::Cast& c, uint64_t seed, uint64_t index0, int site) {
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t R = c.mode >= SR ? draw_element(seed, index0 + i, site, c.rbits) : 0;
        x[i] = (T)round_value((double)x[i], c, R);
    }
}

}  // namespace gemmsim::NS
