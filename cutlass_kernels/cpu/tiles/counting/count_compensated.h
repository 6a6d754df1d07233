// Counts events at compensated sums in few instructions a step (count_fast.h). It serves formats with subnormals, to nearest even, for
// which lemma A holds in float lanes (run_tile in product/event_counter.h).
#pragma once
#include "tiles/counting/count_fast.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// Returns the correction after a step, whose sum is u = R(s + y). `plus` is a rounded sum; `order` orders two numbers by magnitude.
template <int METHOD, class V, class Plus, class Order> INL V next_compensation(V c, V s, V y, V u, const Plus& plus, const Order& order) {
    if constexpr (METHOD == KAHAN) return plus(plus(u, -s), -y);
    if constexpr (METHOD == FAST_TWO_SUM) return plus(c, plus(y, -plus(u, -s)));
    if constexpr (METHOD == TWO_SUM) {
        const V z = plus(u, -s), lost = plus(s, -plus(u, -z)), rest = plus(y, -z);
        return plus(c, plus(lost, rest));
    }
    V more, less;
    order(s, y, &more, &less);
    return plus(c, plus(plus(more, -u), less));
}

// Computes one step of a row's vectors again in double lanes.
template <int METHOD> static __attribute__((noinline)) void recount_compensated(Lanes<C32>& lanes, C32::V* compensation, float a,
                                                                                const float* b, const ExactCount& add,
                                                                                const EventTile& into, int64_t element) {
    typedef C64::V V;
    const auto plus = [&](V x, V y) { return add.get().round<false>(add_odd<C64>(x, y), (C64::VU){}); };
    const auto order = [](V x, V y, V* more, V* less) {
        const C64::VI smaller = (C64::VI)(magnitude(x) < magnitude(y));
        *more = select<C64>(smaller, y, x);
        *less = select<C64>(smaller, x, y);
    };
    constexpr int N = NV * C32::L;
    float s[N], c[N], u[N];
    double y[N];
    memcpy(s, lanes.s, sizeof s);
    memcpy(c, compensation, sizeof c);
    for (int j = 0; j < N; j += C64::L) {
        const V q = splat<C64>((double)a) * read(b + j);
        write(y + j, METHOD == KAHAN ? plus(q, -read(c + j)) : add.get().round<false>(q, (C64::VU){}));
    }
    recount_sum<C32, false>(lanes, y, nullptr, add, into, element);
    memcpy(u, lanes.s, sizeof u);
    for (int j = 0; j < N; j += C64::L)
        write(c + j, next_compensation<METHOD>(read(c + j), read(s + j), read(y + j), read(u + j), plus, order));
    memcpy(compensation, c, sizeof c);
}

// Adds all terms to a row's vectors, to nearest. Sums of two registers are rounded once (lemma A of bounds.h), and tiny sums are
// exact. Where an end of the format is far enough for the sums that are checked, it is far enough for all sums of a step.
template <int METHOD> static __attribute__((noinline)) void count_fast_compensated(const Tile& t, int nr, int row, int at,
                                                                                   const FastCount<C32>& k, const ExactCount& add,
                                                                                   const EventTile& into) {
    typedef C32::V V;
    typedef C32::VI VI;
    const float *a = (const float*)t.a + row, *b = (const float*)t.b + at;
    float* const out = (float*)t.c + row * nr + at;
    const int64_t element = row * (int64_t)nr + at;
    const V zero = {};
    const C32::VU none = {};
    const auto plus = [&](V x, V y) { return k.round<TO_NEAREST>(x + y, none); };
    const auto order = [](V x, V y, V* more, V* less) {
        const VI smaller = (VI)((VI)((C32::VU)x & ~C32::SIGN) < (VI)((C32::VU)y & ~C32::SIGN));
        *more = select<C32>(smaller, y, x);
        *less = select<C32>(smaller, x, y);
    };
    float* const after = (float*)t.rest + row * nr + at;
    CountedRows<C32, 1> one = {};
    RegisterBlock<C32, 1> corrections = {};
    if (!t.begins) one.sum.get(out), corrections.get(after);
    V(&s)[NV] = one.sum[0], (&c)[NV] = corrections[0];
    for (int64_t n = 0; n < t.k; ++n) {
        const V av = splat<C32>(a[n * MR]);
        V u[NV], stored[NV];
        VI same[NV], equal[NV], rare = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            const V bv = load<V>(b + n * nr + j * C32::L), x = vfma(av, bv, METHOD == KAHAN ? -c[j] : zero);
            const V y = k.round<TO_NEAREST>(x, none);
            const VI nothing = (VI)(av == zero) | (VI)(bv == zero);
            const V total = s[j] + y;
            u[j] = k.round<TO_NEAREST>(total, none);
            same[j] = (VI)(u[j] == s[j]) & ~(VI)(y == zero);
            equal[j] = (VI)(total == u[j]) & ~same[j] & ~((VI)(u[j] == y) & ~(VI)(s[j] == zero));
            stored[j] = next_compensation<METHOD>(c[j], s[j], y, u[j], plus, order);
            rare |= k.large(x) | k.large(total) | (~nothing & (k.small(x) | k.is_tie(x)));
            if (METHOD != KAHAN) rare |= k.large(stored[j]);
        }
        if (__builtin_expect(!none_set(rare), 0)) {
            Lanes<C32> lanes = one.row(0);
            recount_compensated<METHOD>(lanes, c, a[n * MR], b + n * nr, add, into, element);
            one.set_row(0, lanes);
            continue;
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            s[j] = u[j];
            c[j] = stored[j];
            one.swamped[0][j] -= same[j];
            one.exact[0][j] -= equal[j];
        }
    }
    one.put(out, 0, into, element, t.k);
    for (int j = 0; !t.ends && j < NV; ++j) store(after + j * C32::L, c[j]);
    if (METHOD == KAHAN || t.k == 0 || !t.ends) return;
    float rest[NV * C32::L];
    memcpy(rest, c, sizeof rest);
    count_fast_sums(out, rest, k, add, into, element);
}

template <int METHOD> static void count_fast_compensated_tile(const Tile& t, int nr, const FastCount<C32>& k, const ExactCount& add,
                                                              const EventTile& into) {
    for (int row = 0; row < t.rows; ++row)
        for (int at = 0; at < t.cols; at += NV * C32::L) count_fast_compensated<METHOD>(t, nr, row, at, k, add, into);
}

static void count_fast_compensated_sums(const Tile& t, int nr, int method, const ExactCount& add, const EventTile& into) {
    const double end = t.add->hi < -t.add->lo ? t.add->hi : -t.add->lo;
    const FastCount<C32> k = FastCount<C32>::make(*t.add, into.least, end / 4);
    if (method == KAHAN) count_fast_compensated_tile<KAHAN>(t, nr, k, add, into);
    else if (method == NEUMAIER) count_fast_compensated_tile<NEUMAIER>(t, nr, k, add, into);
    else if (method == TWO_SUM) count_fast_compensated_tile<TWO_SUM>(t, nr, k, add, into);
    else count_fast_compensated_tile<FAST_TWO_SUM>(t, nr, k, add, into);
}

}  // namespace gemmsim::NS
#endif
