// Single products whose sums meet in pairs, watched (events_fast.h): a row's whole tree in one pass. Counts stay in registers until
// the last sum. Most sums have no zero among their addends, which takes fewer instructions; where one may be, or a sum is out of
// the range in which nothing rare happens, one of the functions with `lanes` takes the step again.
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
    // More than `limit` where x is outside.
    INL_MEMBER C32::VI place(C32::V x) const { return (C32::VI)(((C32::VU)x & ~C32::SIGN) + (C32::VU)bias); }
};

// One cast of the tree.
struct PairCast {
    const Brisk<C32> k;
    const Range range;
    const Careful& careful;
    const EventTile& into;

    PairCast(const Careful& add, const EventTile& tile, double least)
        : k(Brisk<C32>::make(add.cast, least, add.cast.hi < -add.cast.lo ? add.cast.hi : -add.cast.lo)), range(Range::make(k)),
          careful(add), into(tile) {}
};

// R(+0 + a * b), rounded once (split.h); `x`: the carrier's product.
INL C32::V rounded_product(C32::V a, C32::V b, C32::V* x, const PairCast& c) {
    *x = vfma(a, b, (C32::V){});
    const C32::V g = *x * c.k.factor;
    return g + vfms(a, b, g);
}
INL Mask is_product(C32::V a, C32::V b, C32::V r) { return equals(vfms(a, b, r), (C32::V){}); }

// lanes.s = R(+0 + a * b). A factor of zero is nothing rare.
static __attribute__((noinline)) void product_again(Lanes<C32>& lanes, float a, const float* b, const PairCast& c, int64_t element) {
    typedef C32::V V;
    const V av = splat<C32>(a), zero = {};
    V r[NV];
    Mask rare = {};
    for (int j = 0; j < NV; ++j) {
        V x;
        const V bv = load<V>(b + j * C32::L);
        r[j] = rounded_product(av, bv, &x, c);
        const Mask factor = either(equals(av, zero), equals(bv, zero));
        rare = either(rare, but(exceeds(c.range.place(x), c.range.limit), both(factor, equals(x, zero))));
    }
    if (any(rare)) {
        double q[NV * C32::L];
        for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)a * (double)b[l];
        for (int j = 0; j < NV; ++j) lanes.s[j] = zero;
        return sum_again<C32, false>(lanes, q, nullptr, c.careful, c.into, element);
    }
    for (int j = 0; j < NV; ++j) {
        lanes.s[j] = r[j];
        lanes.exact[j] = counted(lanes.exact[j], is_product(av, load<V>(b + j * C32::L), r[j]));
    }
}

// lanes.s = R(lanes.s + x). A sum of zero is nothing rare.
static __attribute__((noinline)) void pair_again(Lanes<C32>& lanes, const C32::V* x, const PairCast& c, int64_t element) {
    typedef C32::V V;
    const V zero = {};
    V r[NV];
    Mask same[NV], equal[NV], rare = {};
    for (int j = 0; j < NV; ++j) {
        const V s = lanes.s[j], sum = s + x[j];
        r[j] = c.k.with_sign_of(c.k.round<TO_NEAREST>(sum, (C32::VU){}), sum);
        same[j] = but(equals(r[j], s), equals(x[j], zero));
        equal[j] = but(but(equals(sum, r[j]), same[j]), but(equals(r[j], x[j]), equals(s, zero)));
        rare = either(rare, but(exceeds(c.range.place(sum), c.range.limit), equals(sum, zero)));
    }
    if (any(rare)) {
        double q[NV * C32::L];
        for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)x[l / C32::L][l % C32::L];
        return sum_again<C32, false>(lanes, q, nullptr, c.careful, c.into, element);
    }
    for (int j = 0; j < NV; ++j) {
        lanes.s[j] = r[j];
        lanes.swamped[j] = counted(lanes.swamped[j], same[j]);
        lanes.exact[j] = counted(lanes.exact[j], equal[j]);
    }
}

// One row. What says whether there may be zeros is not part of the values, which are copied as vectors.
struct BriskPairs {
    typedef C32::V V;
    typedef C32::VI VI;
    typedef V Value[NV];
    enum { HEIGHT = 2, DEEP = 64 };  // of a tree whose sums stay in registers; sums that wait for another

    const float *a, *b;
    const int nr;
    const PairCast &of_product, &of_sum;
    const int64_t element;
    VI swamped[NV], exact[NV];

    INL_MEMBER Lanes<C32> lanes_of(const Value& s) const {
        Lanes<C32> lanes;
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) lanes.s[j] = s[j], lanes.swamped[j] = swamped[j], lanes.exact[j] = exact[j];
        return lanes;
    }
    // Whether there are zeros.
    INL_MEMBER bool take(const Lanes<C32>& lanes, Value& s) {
        Mask zeros = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            s[j] = lanes.s[j], swamped[j] = lanes.swamped[j], exact[j] = lanes.exact[j];
            zeros = either(zeros, equals(s[j], (V){}));
        }
        return any(zeros);
    }

    // s = R(+0 + the product k). Whether there are zeros.
    INL_MEMBER bool product(int64_t k, Value& s) {
        const V av = splat<C32>(a[k * MR]);
        Mask equal[NV];
        VI place = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            V x;
            const V bv = load<V>(b + k * nr + j * C32::L);
            s[j] = rounded_product(av, bv, &x, of_product);
            equal[j] = is_product(av, bv, s[j]);
            place = j ? imax(place, of_product.range.place(x)) : of_product.range.place(x);
        }
        if (__builtin_expect(any(exceeds(place, of_product.range.limit)), 0)) {
            Lanes<C32> lanes = lanes_of(s);
            product_again(lanes, a[k * MR], b + k * nr, of_product, element);
            return take(lanes, s);
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) exact[j] = counted(exact[j], equal[j]);
        return false;
    }

    // right = R(left + right). `zeros`: whether there are any in these. Whether there are any now.
    INL_MEMBER bool pair(const Value& left, Value& right, bool zeros) {
        if (__builtin_expect(!zeros, 1)) {
            Value r;
            Mask same[NV], equal[NV];
            VI place = {};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                const V sum = left[j] + right[j];
                r[j] = of_sum.k.round<TO_NEAREST>(sum, (C32::VU){});
                same[j] = same_bits(r[j], left[j]);
                equal[j] = but(but(same_bits(r[j], sum), same[j]), same_bits(r[j], right[j]));
                place = j ? imax(place, of_sum.range.place(sum)) : of_sum.range.place(sum);
            }
            if (__builtin_expect(!any(exceeds(place, of_sum.range.limit)), 1)) {
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j) {
                    right[j] = r[j];
                    swamped[j] = counted(swamped[j], same[j]);
                    exact[j] = counted(exact[j], equal[j]);
                }
                return false;
            }
        }
        Lanes<C32> lanes = lanes_of(left);
        Value x;
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) x[j] = right[j];
        pair_again(lanes, x, of_sum, element);
        return take(lanes, right);
    }

    template <int H> INL_MEMBER bool subtree(int64_t k, Value& s) {
        if constexpr (H == 0) return product(k, s);
        else {
            Value left;
            const bool zeros = subtree<H - 1>(k, left), other = subtree<H - 1>(k + (1 << (H - 1)), s);
            return pair(left, s, zeros || other);
        }
    }

    // compose.h's tree: sums that wait are the set bits of the number of terms so far.
    INL_MEMBER void run(int64_t n, Value& s) {
        Value waits[DEEP];
        bool with_zeros[DEEP], zeros = false;
        int used = 0;
        const auto join = [&]() __attribute__((always_inline)) {
            --used;
            zeros = pair(waits[used], s, zeros || with_zeros[used]);
        };
        const auto put = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) waits[used][j] = s[j];
            with_zeros[used++] = zeros;
        };
        int64_t k = 0;
        for (; k + (1 << HEIGHT) <= n; k += 1 << HEIGHT) {
            zeros = subtree<HEIGHT>(k, s);
            for (int64_t before = k >> HEIGHT; before & 1; before >>= 1) join();
            put();
        }
        for (; k < n; ++k) {
            zeros = product(k, s);
            for (int64_t before = k; before & 1; before >>= 1) join();
            put();
        }
        zeros = with_zeros[--used];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) s[j] = waits[used][j];
        while (used) join();
    }
};

static __attribute__((noinline)) void brisk_pairs_of_row(const Tile& t, int nr, int row, const PairCast& of_product,
                                                         const PairCast& of_sum) {
    const PairCast product = of_product, sum = of_sum;  // which calls do not change
    const int64_t element = row * (int64_t)nr;
    BriskPairs tree = {(const float*)t.a + row, (const float*)t.b, nr, product, sum, element, {}, {}};
    BriskPairs::Value s;
    tree.run(t.k, s);
    store_lanes<C32>(tree.lanes_of(s), (float*)t.c + element, sum.into, element, 2 * t.k - 1);
}

// A tile's terms, each by itself, and the pairs of their sums, which `cast` rounds.
static void brisk_pairs(const Tile& t, int nr, const Cast& cast, const EventTile& products, const EventTile& sums) {
    const Careful add = {*t.add, products.least}, meet = {cast, sums.least};
    const PairCast of_product(add, products, products.least > LEAST_PRODUCT ? products.least : LEAST_PRODUCT), of_sum(meet, sums, sums.least);
    for (int row = 0; row < t.rows; ++row) brisk_pairs_of_row(t, nr, row, of_product, of_sum);
}

}  // namespace gemmsim::NS
#endif
