// Single products whose sums meet in pairs, watched (events_fast.h): a row's whole tree in one pass. Counts stay in registers until
// the last sum.
#pragma once
#include "tiles/events_fast.h"
#include "tiles/lane_masks.h"
#include "tiles/split.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// A product's error is a float number down to here.
constexpr double LEAST_PRODUCT = 0x1p-100;

// Magnitudes between two, as bits.
struct Range {
    C32::VI bias, limit;
    INL Range make(const Brisk<C32>& k) {
        const int32_t low = k.least[0] - 1, high = k.most[0];
        if (high < low) return Range{(C32::VI){}, splat_i<C32>(-1)};  // which has none
        return Range{splat_i<C32>((int32_t)(0x80000000u - (uint32_t)low)), splat_i<C32>((int32_t)(0x80000000u + (uint32_t)(high - low)))};
    }
    INL_MEMBER Mask leaves(C32::V x) const {
        const C32::VU magnitude = (C32::VU)x & ~C32::SIGN;
        return exceeds((C32::VI)(magnitude + (C32::VU)bias), limit);
    }
};

// One cast of this tree.
struct PairCast {
    const Brisk<C32> k;
    const Range range;
    const Careful careful;
    const EventTile& into;

    PairCast(const Cast& c, const EventTile& tile, double least)
        : k(Brisk<C32>::make(c, least, c.hi < -c.lo ? c.hi : -c.lo)), range(Range::make(k)), careful{c, tile.least}, into(tile) {}
};

static __attribute__((noinline)) void product_again(Lanes<C32>& lanes, float a, const float* b, const PairCast& c, int64_t element) {
    double q[NV * C32::L];
    for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)a * (double)b[l];
    sum_again<C32, false>(lanes, q, nullptr, c.careful, c.into, element);
}

static __attribute__((noinline)) void pair_again(Lanes<C32>& lanes, const C32::V* x, const PairCast& c, int64_t element) {
    double q[NV * C32::L];
    for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)x[l / C32::L][l % C32::L];
    sum_again<C32, false>(lanes, q, nullptr, c.careful, c.into, element);
}

// One row.
struct BriskPairs {
    typedef C32::V V;
    typedef C32::VI VI;
    typedef C32::VU VU;
    enum { HEIGHT = 2, DEEP = 64 };  // of a tree whose sums stay in registers; sums that wait for another

    const float *a, *b;
    const int nr;
    const PairCast &of_product, &of_sum;
    const int64_t element;
    VI swamped[NV], exact[NV];

    INL_MEMBER void save(Lanes<C32>& lanes, const V* s) const {
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) lanes.s[j] = s[j], lanes.swamped[j] = swamped[j], lanes.exact[j] = exact[j];
    }
    INL_MEMBER void restore(const Lanes<C32>& lanes, V* s) {
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) s[j] = lanes.s[j], swamped[j] = lanes.swamped[j], exact[j] = lanes.exact[j];
    }

    // s = R(+0 + the product k), rounded once (split.h).
    INL_MEMBER void product(int64_t k, V (&s)[NV]) {
        const V av = splat<C32>(a[k * MR]), zero = {};
        V x[NV], y[NV];
        Mask found[NV], equal[NV], rare = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            y[j] = load<V>(b + k * nr + j * C32::L);
            x[j] = vfma(av, y[j], zero);
            const V g = x[j] * of_product.k.factor;
            s[j] = g + vfms(av, y[j], g);
            equal[j] = equals(vfms(av, y[j], s[j]), zero);
            found[j] = of_product.range.leaves(x[j]);
            rare = either(rare, found[j]);
        }
        if (__builtin_expect(any(rare), 0)) {
            rare = (Mask){};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                const Mask factor = either(equals(av, zero), equals(y[j], zero));
                rare = either(rare, but(found[j], both(factor, equals(x[j], zero))));
            }
            if (any(rare)) {
                Lanes<C32> lanes;
                const V none[NV] = {};
                save(lanes, none);
                product_again(lanes, a[k * MR], b + k * nr, of_product, element);
                return restore(lanes, s);
            }
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) exact[j] = counted(exact[j], equal[j]);
    }

    // s = R(s + x)
    INL_MEMBER void pair(V (&s)[NV], const V (&x)[NV]) {
        const V zero = {};
        V sum[NV], r[NV];
        Mask found[NV], same[NV], equal[NV], rare = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            sum[j] = s[j] + x[j];
            r[j] = of_sum.k.round<TO_NEAREST>(sum[j], (VU){});
            same[j] = but(equals(r[j], s[j]), equals(x[j], zero));
            equal[j] = but(but(equals(sum[j], r[j]), same[j]), but(equals(r[j], x[j]), equals(s[j], zero)));
            found[j] = of_sum.range.leaves(sum[j]);
            rare = either(rare, found[j]);
        }
        if (__builtin_expect(any(rare), 0)) {
            rare = (Mask){};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                rare = either(rare, but(found[j], equals(sum[j], zero)));
                r[j] = of_sum.k.with_sign_of(r[j], sum[j]);
            }
            if (any(rare)) {
                Lanes<C32> lanes;
                save(lanes, s);
                const V other[NV] = {x[0], x[1]};
                pair_again(lanes, other, of_sum, element);
                return restore(lanes, s);
            }
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            s[j] = r[j];
            swamped[j] = counted(swamped[j], same[j]);
            exact[j] = counted(exact[j], equal[j]);
        }
    }

    template <int H> INL_MEMBER void subtree(int64_t k, V (&s)[NV]) {
        if constexpr (H == 0) return product(k, s);
        else {
            V t[NV];
            subtree<H - 1>(k, s);
            subtree<H - 1>(k + (1 << (H - 1)), t);
            pair(s, t);
        }
    }

    // compose.h's tree: sums that wait are the set bits of the number of terms so far.
    void run(int64_t n, float* c) {
        V waits[DEEP][NV];
        int used = 0;
        const auto join = [&](V(&s)[NV]) __attribute__((always_inline)) {
            --used;
            V left[NV];
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) left[j] = waits[used][j];
            pair(left, s);
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) s[j] = left[j];
        };
        const auto put = [&](const V(&s)[NV]) __attribute__((always_inline)) {
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) waits[used][j] = s[j];
            ++used;
        };
        V s[NV];
        int64_t k = 0;
        for (; k + (1 << HEIGHT) <= n; k += 1 << HEIGHT) {
            subtree<HEIGHT>(k, s);
            for (int64_t before = k >> HEIGHT; before & 1; before >>= 1) join(s);
            put(s);
        }
        for (; k < n; ++k) {
            product(k, s);
            for (int64_t before = k; before & 1; before >>= 1) join(s);
            put(s);
        }
        --used;
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) s[j] = waits[used][j];
        while (used) join(s);
        Lanes<C32> lanes;
        save(lanes, s);
        store_lanes<C32>(lanes, c, of_sum.into, element, 2 * n - 1);
    }
};

// A tile's terms, each by itself, and the pairs of their sums, which `cast` rounds.
static void brisk_pairs(const Tile& t, int nr, const Cast& cast, const EventTile& runs, const EventTile& pairs) {
    const PairCast of_product(*t.add, runs, runs.least > LEAST_PRODUCT ? runs.least : LEAST_PRODUCT), of_sum(cast, pairs, pairs.least);
    for (int row = 0; row < t.rows; ++row) {
        BriskPairs tree = {(const float*)t.a + row, (const float*)t.b, nr, of_product, of_sum, row * (int64_t)nr, {}, {}};
        tree.run(t.k, (float*)t.c + row * nr);
    }
}

}  // namespace gemmsim::NS
#endif
