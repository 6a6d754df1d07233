// Counts events at additions in few instructions a step, where nothing rare happens. Rare are an end of the format, a tie, and a sum
// that the carrier may not represent. A vector in which one of these may occur takes the full step instead, in double lanes
// (CountedLanes::sum in count_events.h).
//
// The carrier's sum x, in the rounding mode of direction_of(), is rounded to r. Where x is not r, the exact sum is not r either:
// r is a number of the carrier, so an exact sum of r would give x = r. Where x is r, the carrier may have lost something, and
// the step is computed again in full. But a product of zero changes nothing.
#pragma once
#include <new>
#include "float_state.h"
#include "tiles/counting/count_events.h"
#include "tiles/directed/lane_masks.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// TO_NEAREST is RNE. TOWARD_ZERO is RTZ. HALF_AWAY is RNA: half a place is added, and the sum is truncated. BY_DRAW is SR: a draw is
// added, and the sum is truncated. UPWARD and DOWNWARD are RU and RD: where the sum moves away from zero, all bits that the
// truncation clears are added first.
enum How { TO_NEAREST, TOWARD_ZERO, HALF_AWAY, BY_DRAW, UPWARD, DOWNWARD };

inline void round_toward(RoundingState::Direction mode) {
    alignas(RoundingState) char state[sizeof(RoundingState)];
    new (state) RoundingState(mode);  // no destructor runs, so that the mode stays
}
// The carrier's rounding mode in which x decides what the exact sum would.
constexpr RoundingState::Direction direction_of(How how) {
    return how == TO_NEAREST ? RoundingState::NEAREST
           : how == UPWARD   ? RoundingState::UP
           : how == DOWNWARD ? RoundingState::DOWN
                             : RoundingState::TO_ZERO;
}

template <class C> INL typename C::V read_as(const float* p) {
    if constexpr (sizeof(typename C::T) == 4) return load<typename C::V>(p);
    else return read(p);
}
template <class C> INL typename C::V read_as(const double* p) { return read(p); }
INL void write_as(float* p, C32::V x) { store(p, x); }
template <class T> INL void write_as(T* p, C64::V x) { write(p, x); }

// One cast in the carrier's lanes.
template <class C> struct FastCount {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    V factor;
    VU mask, half, tie, keep_sign;
    VI least, most;  // magnitudes as bits: between them is what is neither tiny nor near the end
    int dropped, draw_shift, rbits;

    INL FastCount make(const Cast& c, double least, double most) {
        typedef typename C::T T;
        typedef typename C::U U;
        FastCount k;
        const auto bits = [](double x) {
            const T value = (T)x;
            typename C::I u;
            memcpy(&u, &value, sizeof u);
            return splat_i<C>(u);
        };
        k.dropped = C::MB + 1 - c.p;
        k.factor = splat<C>(Const<C>::power(k.dropped) + 1);
        k.mask = splat_u<C>(~(((U)1 << k.dropped) - 1));
        k.half = splat_u<C>(c.mode == RNA ? (U)1 << (k.dropped - 1) : 0);
        k.tie = splat_u<C>(C::SIGN);
        k.keep_sign = splat_u<C>(c.flags & NEG_ZERO ? C::SIGN : 0);
        k.least = bits(least) + 1;  // a sum below it may have been rounded to it
        k.most = bits(most < Const<C>::power(C::EMAX - k.dropped - 2) ? most : Const<C>::power(C::EMAX - k.dropped - 2));
        k.rbits = c.rbits;
        k.draw_shift = k.dropped - c.rbits;
        return k;
    }
    template <How HOW> INL_MEMBER V round(V x, VU R) const {
        if constexpr (HOW == TO_NEAREST) {
            const V g = x * factor;
            return g + (x - g);
        }
        if constexpr (HOW == TOWARD_ZERO) return (V)((VU)x & mask);
        if constexpr (HOW == HALF_AWAY) return (V)(((VU)x + half) & mask);
        const VU negative = (VU)((VI)x >> (8 * (int)sizeof(typename C::T) - 1));
        if constexpr (HOW == UPWARD) return (V)(((VU)x + (~mask & ~negative)) & mask);
        if constexpr (HOW == DOWNWARD) return (V)(((VU)x + (~mask & negative)) & mask);
        return (V)(((VU)x + (R << draw_shift)) & mask);
    }
    // Gives r the sign of x, which matters for zeros: the sum of two -0 is -0.
    INL_MEMBER V with_sign_of(V r, V x) const { return (V)((VU)r | ((VU)x & keep_sign)); }
    INL_MEMBER VI large(V x) const { return (VI)((VI)((VU)x & ~C::SIGN) > most); }
    INL_MEMBER VI small(V x) const { return (VI)((VI)((VU)x & ~C::SIGN) < least); }
    INL_MEMBER Mask ties(C32::V x) const { return same_bits((C32::V)((C32::VU)x << (32 - dropped)), (C32::V)tie); }
    INL_MEMBER VI is_tie(V x) const { return (VI)((VU)((VU)x << (8 * (int)sizeof(typename C::T) - dropped)) == tie); }
};

// A range of magnitudes, from one number's bits to another's.
struct Range {
    C32::VI bias, limit;
    INL Range make(int32_t low, int32_t high) {
        if (high < low) return Range{(C32::VI){}, splat_i<C32>(-1)};  // the range is empty
        return Range{splat_i<C32>((int32_t)(0x80000000u - (uint32_t)low)), splat_i<C32>((int32_t)(0x80000000u + (uint32_t)(high - low)))};
    }
    // Returns more than `limit` where x is outside of the range.
    INL_MEMBER C32::VI place(C32::V x) const { return (C32::VI)(((C32::VU)x & ~C32::SIGN) + (C32::VU)bias); }
};

// Checks whether any of several float sums may be rare, or may have a product of zero. Such a sum is outside of the range, a number
// of the format or, to nearest, a tie.
template <How HOW> struct UsualSums {
    const Range range;
    const C32::VU low;  // the bits that rounding discards; to nearest, all but the first of them
    C32::VU least = {};
    C32::VI most = {};

    explicit UsualSums(const FastCount<C32>& k)
        : range(Range::make(k.least[0], k.most[0])), low(splat_u<C32>(((C32::U)1 << (k.dropped - (HOW == TO_NEAREST))) - 1)) {}
    INL_MEMBER void check(C32::V x, bool first) {
        const C32::VU bits = (C32::VU)x & low;
        const C32::VI place = range.place(x);
        least = first ? bits : umin(least, bits);
        most = first ? place : imax(most, place);
    }
    INL_MEMBER Mask rare() const { return either(same_bits((C32::V)least, (C32::V){}), exceeds(most, range.limit)); }
    INL_MEMBER bool all() const { return !any(rare()); }
};

// The cast of full steps, made when the first one is needed.
struct ExactCount {
    const Cast& cast;
    double least;
    mutable bool made = false;
    mutable CountedLanes lanes = {};
    const CountedLanes& get() const {
        if (!made) lanes = CountedLanes::make(cast, least);
        made = true;
        return lanes;
    }
};

// A row's vectors for full steps. Counts of the two frequent events are in lanes of the carrier.
template <class C> struct Lanes {
    typename C::V s[NV];
    typename C::VI swamped[NV], exact[NV];
};

// s = R(s + q) in double lanes, as a full step. Counts of rare events go to `into`.
template <class C, bool RANDOM>
static __attribute__((noinline)) void recount_sum(Lanes<C>& lanes, const double* q, const typename C::U* R, const ExactCount& add,
                                                  const EventTile& into, int64_t element) {
    constexpr int N = NV * C::L;
    typename C::T s[N];
    typename C::I swamped[N], exact[N];
    memcpy(s, lanes.s, sizeof s);
    memcpy(swamped, lanes.swamped, sizeof swamped);
    memcpy(exact, lanes.exact, sizeof exact);
    for (int j = 0; j < N; j += C64::L) {
        C64::VU draw = {};
        if (RANDOM)
            for (int l = 0; l < C64::L; ++l) draw[l] = R[j + l];
        Seen seen = {};
        write(s + j, add.get().sum<RANDOM>(read(s + j), read(q + j), draw, seen));
        for (int l = 0; l < C64::L; ++l) {
            swamped[j + l] += (typename C::I)seen.of[SWAMPED][l];
            exact[j + l] += (typename C::I)(1 - seen.of[INEXACT][l]);
            *into.of(UNDERFLOWN, element + j + l) += seen.of[UNDERFLOWN][l];
            *into.of(OVERFLOWN, element + j + l) += seen.of[OVERFLOWN][l];
        }
    }
    memcpy(lanes.s, s, sizeof s);
    memcpy(lanes.swamped, swamped, sizeof swamped);
    memcpy(lanes.exact, exact, sizeof exact);
}

INL C64::VI counts_at(const C64::VI* x, int) { return *x; }
INL C64::VI counts_at(const C32::VI* x, int at) { return widened_integers(load<HalfInts>((const int32_t*)x + at)); }

template <class C, class T> INL void load_lanes(Lanes<C>& lanes, const T* c) {
    for (int j = 0; j < NV; ++j) {
        lanes.s[j] = read_as<C>(c + j * C::L);
        lanes.swamped[j] = lanes.exact[j] = (typename C::VI){};
    }
}

// Stores the register, and the counts of `made` additions.
template <class C, class T> INL void store_lanes(const Lanes<C>& lanes, T* c, const EventTile& into, int64_t element, int64_t made) {
    for (int j = 0; j < NV; ++j) {
        write_as(c + j * C::L, lanes.s[j]);
        for (int l = 0; l < C::L; l += C64::L) {
            int64_t *const swamped = into.of(SWAMPED, element + j * C::L + l), *const inexact = into.of(INEXACT, element + j * C::L + l);
            store(swamped, load<C64::VI>(swamped) + counts_at(&lanes.swamped[j], l));
            store(inexact, load<C64::VI>(inexact) + (splat_i<C64>(made) - counts_at(&lanes.exact[j], l)));
        }
    }
}

// The registers of ROWS rows and NV vectors of columns, and their counts of the two frequent events.
template <class C, int ROWS> struct CountedRows {
    typedef typename C::VI VI;
    RegisterBlock<C, ROWS> sum;
    VI swamped[ROWS][NV], exact[ROWS][NV];

    // Takes the rows at c, which are nr elements apart, and counts of zero.
    template <class T> INL_MEMBER void get(const T* c, int64_t nr) {
        sum.each([&](int i, int j) __attribute__((always_inline)) {
            sum[i][j] = read_as<C>(c + i * nr + j * C::L);
            swamped[i][j] = exact[i][j] = VI{};
        });
    }
    // Stores the registers, and the counts of `made` additions.
    template <class T> INL_MEMBER void put(T* c, int64_t nr, const EventTile& into, int64_t element, int64_t made) const {
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) store_lanes<C>(row(i), c + i * nr, into, element + i * (int64_t)nr, made);
    }
    // A row, as full steps take it and leave it.
    INL_MEMBER Lanes<C> row(int i) const {
        Lanes<C> lanes;
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) lanes.s[j] = sum[i][j], lanes.swamped[j] = swamped[i][j], lanes.exact[j] = exact[i][j];
        return lanes;
    }
    INL_MEMBER void set_row(int i, const Lanes<C>& lanes) {
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) sum[i][j] = lanes.s[j], swamped[i][j] = lanes.swamped[j], exact[i][j] = lanes.exact[j];
    }
};

template <class C, class T, How HOW, bool RANDOM>
static __attribute__((noinline)) void recount(Lanes<C>& lanes, T a, const T* b, const typename C::VU* R, const ExactCount& add,
                                              const EventTile& into, int64_t element) {
    constexpr RoundingState::Direction mode = direction_of(HOW);
    if (mode != RoundingState::NEAREST) round_toward(RoundingState::NEAREST);
    double q[NV * C::L];
    typename C::U draws[NV * C::L];
    for (int l = 0; l < NV * C::L; ++l) q[l] = (double)a * (double)b[l];
    memcpy(draws, R, sizeof draws);
    recount_sum<C, RANDOM>(lanes, q, draws, add, into, element);
    if (mode != RoundingState::NEAREST) round_toward(mode);
}

// Adds one term to ROWS rows, if nothing in it may be rare. All sums are then inexact, and `swamped` counts those that the register
// ignores. False: something may be rare, and nothing is changed.
template <How HOW, int ROWS> INL bool usual_step(const float* a, const float* b, const FastCount<C32>& k, CountedRows<C32, ROWS>& rows) {
    typedef C32::V V;
    RegisterBlock<C32, ROWS> x;
    UsualSums<HOW> usual(k);
    x.each([&](int i, int j) __attribute__((always_inline)) {
        x[i][j] = vfma(splat<C32>(a[i]), load<V>(b + j * C32::L), rows.sum[i][j]);
        usual.check(x[i][j], i + j == 0);
    });
    if (__builtin_expect(!usual.all(), 0)) return false;
    x.each([&](int i, int j) __attribute__((always_inline)) {
        const V r = k.template round<HOW>(x[i][j], C32::VU{});
        rows.swamped[i][j] = counted(rows.swamped[i][j], same_bits(r, rows.sum[i][j]));
        rows.sum[i][j] = r;
    });
    return true;
}

// Adds all terms to ROWS rows and NV vectors of columns from `at` on, in the rounding mode that HOW needs. KNOWN: the planner knows
// that a sum which the carrier does not represent leaves the larger addend (lemma A of bounds.h). Then x = r decides what happened.
template <class C, class T, How HOW, bool KNOWN, int ROWS>
static __attribute__((noinline)) void count_fast_rows(const Tile& t, int nr, int row, int at, const FastCount<C>& k, const ExactCount& add,
                                                      const EventTile& into) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b + at;
    T* const c = (T*)t.c + row * nr + at;
    const V zero = {};
    const int bits = HOW == BY_DRAW ? k.rbits : 0, per = bits > 16 ? 4 : 8;
    Draws<C, HOW == BY_DRAW ? ROWS : 1> draws;
    Tile place = t;
    place.col0 = t.col0 + (uint32_t)at;
    CountedRows<C, ROWS> rows;
    rows.get(c, nr);
    constexpr bool IN_FLOATS = sizeof(typename C::T) == 4 && !KNOWN && HOW != BY_DRAW;
    // Usual steps raise this and other steps lower it. Below zero, no step is assumed to be usual.
    int trust = IN_FLOATS ? 32 : -1;
    // Whether a row's sums have a -0, which a full step can leave. The short step to nearest loses its sign.
    bool negative_zeros[ROWS] = {};
    rows.sum.each([&](int i, int j)
                      __attribute__((always_inline)) { negative_zeros[i] |= !none_set((VI)((VU)rows.sum[i][j] == splat_u<C>(C::SIGN))); });
    for (int64_t n = 0; n < t.k; ++n) {
        if constexpr (IN_FLOATS)
            if (trust >= 0) {
                if (usual_step<HOW, ROWS>(a + n * MR, b + n * nr, k, rows)) {
                    trust += trust < 64;
                    continue;
                }
                trust -= 4;
            }
        const int64_t index = HOW == BY_DRAW ? t.index(n) : 0;
        if (HOW == BY_DRAW && (n == 0 || t.kmap || index % per == 0)) draws.make(place, row, (uint32_t)(index / per), SITE_ADD);
        V bv[NV];
        VI b_zero[NV];
        for (int j = 0; j < NV; ++j) {
            bv[j] = read_as<C>(b + n * nr + j * C::L);
            b_zero[j] = (VI)(bv[j] == zero);
        }
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C>((typename C::T)a[n * MR + i]);
            const VI a_zero = (VI)(av == zero);
            V r[NV];
            VU R[NV] = {};
            VI same[NV], equal[NV], rare = {};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                const V s = rows.sum[i][j], x = vfma(av, bv[j], s);
                if (HOW == BY_DRAW) R[j] = draws.get(i, j, (int)(index % per), bits);
                r[j] = k.template round<HOW>(x, R[j]);
                const VI nothing = a_zero | b_zero[j];
                const VI tiny = k.small(x);
                VI odd = tiny;
                if (HOW == UPWARD || HOW == DOWNWARD) rare |= tiny;  // a zero may have another sign
                equal[j] = (VI)(x == r[j]);
                same[j] = (VI)(r[j] == s) & ~nothing;
                if (KNOWN) {
                    odd |= (VI)(x == av * bv[j]) & ~(VI)(s == zero);
                    equal[j] &= ~same[j];
                } else {
                    odd |= equal[j];
                    if (HOW == TO_NEAREST) odd |= k.is_tie(x);
                }
                rare |= k.large(x) | (odd & ~nothing);
            }
            if (__builtin_expect(!none_set(rare) || (HOW == TO_NEAREST && negative_zeros[i]), 0)) {
                Lanes<C> lanes = rows.row(i);
                recount<C, T, HOW, HOW == BY_DRAW>(lanes, a[n * MR + i], b + n * nr, R, add, into, (row + i) * (int64_t)nr + at);
                rows.set_row(i, lanes);
                VI negative = {};
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j) negative |= (VI)((VU)lanes.s[j] == splat_u<C>(C::SIGN));
                negative_zeros[i] = !none_set(negative);
                continue;
            }
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                rows.sum[i][j] = r[j];
                rows.swamped[i][j] -= same[j];
                rows.exact[i][j] -= equal[j];
            }
        }
    }
    rows.put(c, nr, into, row * (int64_t)nr + at, t.k);
}

template <class C, class T, How HOW, bool KNOWN>
static void count_fast_tile(const Tile& t, int nr, const ExactCount& add, const EventTile& into) {
    const FastCount<C> k = FastCount<C>::make(*t.add, into.least, t.add->hi < -t.add->lo ? t.add->hi : -t.add->lo);
    constexpr RoundingState::Direction mode = direction_of(HOW);
    if (mode != RoundingState::NEAREST) round_toward(mode);
    for (int at = 0; at < t.cols; at += NV * C::L) {
        int row = 0;
        for (; row + 2 <= t.rows; row += 2) count_fast_rows<C, T, HOW, KNOWN, 2>(t, nr, row, at, k, add, into);
        if (row < t.rows) count_fast_rows<C, T, HOW, KNOWN, 1>(t, nr, row, at, k, add, into);
    }
    if (mode != RoundingState::NEAREST) round_toward(RoundingState::NEAREST);
}

// s = R(s + x) for one row's vectors of float numbers, with casts for which lemma A holds.
static void count_fast_sums(float* s, const float* x, const FastCount<C32>& k, const ExactCount& add, const EventTile& into,
                            int64_t element) {
    typedef C32::V V;
    typedef C32::VI VI;
    const V zero = {};
    Lanes<C32> lanes;
    load_lanes<C32>(lanes, s);
    V r[NV];
    VI rare = {};
    for (int j = 0; j < NV; ++j) {
        const V u = lanes.s[j], v = load<V>(x + j * C32::L), sum = u + v;
        r[j] = k.with_sign_of(k.round<TO_NEAREST>(sum, (C32::VU){}), sum);
        const VI nothing = (VI)(v == zero), same = (VI)(r[j] == u) & ~nothing, lost = (VI)(r[j] == v) & ~(VI)(u == zero);
        lanes.swamped[j] -= same;
        lanes.exact[j] -= (VI)(sum == r[j]) & ~same & ~lost;
        rare |= k.large(sum) | (k.small(sum) & ~nothing);
    }
    if (__builtin_expect(!none_set(rare), 0)) {
        double q[NV * C32::L];
        for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)x[l];
        load_lanes<C32>(lanes, s);
        recount_sum<C32, false>(lanes, q, nullptr, add, into, element);
    } else {
        for (int j = 0; j < NV; ++j) lanes.s[j] = r[j];
    }
    store_lanes<C32>(lanes, s, into, element, 1);
}

}  // namespace gemmsim::NS
#endif
