// Counts events at sums of short segments that are combined in pairs (count_fast.h): a row's whole tree in one pass. has_pairs() in
// product/event_counter.h chooses it. Counts stay in registers until the last sum. As long as no addend is zero, which is usual,
// there are no tests for zeros.
#pragma once
#include "tiles/counting/count_fast.h"
#include "tiles/round_product.h"

#if ISA_MODES || ISA_AVX512
namespace gemmsim::NS {

// Products down to this one have an error that is a float.
constexpr double LEAST_PRODUCT = 0x1p-100;

// One cast of the tree: that of the products' additions, or that of the combinations.
struct PairCast {
    const FastCount<C32> k;
    const Range range;
    const ExactCount& exact_count;
    const EventTile& into;

    PairCast(const ExactCount& add, const EventTile& tile, double least)
        : k(FastCount<C32>::make(add.cast, least, add.cast.hi < -add.cast.lo ? add.cast.hi : -add.cast.lo)),
          range(Range::make(k.least[0] - 1, k.most[0])), exact_count(add), into(tile) {}
};

// R(+0 + a * b), rounded once (round_product.h). `x` becomes the carrier's product.
INL C32::V rounded_product(C32::V a, C32::V b, C32::V* x, const PairCast& c) {
    *x = vfma(a, b, (C32::V){});
    const C32::V g = *x * c.k.factor;
    return g + vfms(a, b, g);
}
INL Mask is_product(C32::V a, C32::V b, C32::V r) { return equals(vfms(a, b, r), (C32::V){}); }

// lanes.s = R(lanes.s + a * b), as a full step.
static __attribute__((noinline)) void recount_step(Lanes<C32>& lanes, float a, const float* b, const PairCast& c, int64_t element) {
    double q[NV * C32::L];
    for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)a * (double)b[l];
    recount_sum<C32, false>(lanes, q, nullptr, c.exact_count, c.into, element);
}

// lanes.s = R(lanes.s + x), as a full step.
static __attribute__((noinline)) void recount_pair(Lanes<C32>& lanes, const C32::V* x, const PairCast& c, int64_t element) {
    double q[NV * C32::L];
    for (int l = 0; l < NV * C32::L; ++l) q[l] = (double)x[l / C32::L][l % C32::L];
    recount_sum<C32, false>(lanes, q, nullptr, c.exact_count, c.into, element);
}

// The tree of one row. Flags for possible zeros are not part of the values, which are copied as vectors.
struct CountedPairs {
    typedef C32::V V;
    typedef C32::VI VI;
    typedef V Value[NV];
    enum { DEEP = 64 };  // most sums that wait for another

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
    // Returns whether there are zeros.
    INL_MEMBER bool take(const Lanes<C32>& lanes, Value& s) {
        Mask zeros = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            s[j] = lanes.s[j], swamped[j] = lanes.swamped[j], exact[j] = lanes.exact[j];
            zeros = either(zeros, equals(s[j], (V){}));
        }
        return any(zeros);
    }

    // s = R(+0 + the product k). Returns whether there are zeros: a factor of zero is not rare.
    INL_MEMBER bool product(int64_t k, Value& s) {
        const V av = splat<C32>(a[k * MR]), zero = {};
        V x[NV], y[NV];
        Mask equal[NV];
        VI place = {};
        bool zeros = false;
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            y[j] = load<V>(b + k * nr + j * C32::L);
            s[j] = rounded_product(av, y[j], &x[j], of_product);
            equal[j] = is_product(av, y[j], s[j]);
            place = j ? imax(place, of_product.range.place(x[j])) : of_product.range.place(x[j]);
        }
        if (__builtin_expect(any(exceeds(place, of_product.range.limit)), 0)) {
            Mask rare = {};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                const Mask nothing = both(equals(x[j], zero), either(equals(av, zero), equals(y[j], zero)));
                rare = either(rare, but(exceeds(of_product.range.place(x[j]), of_product.range.limit), nothing));
            }
            if (any(rare)) {
                Lanes<C32> lanes = lanes_of(s);
                for (int j = 0; j < NV; ++j) lanes.s[j] = zero;
                recount_step(lanes, a[k * MR], b + k * nr, of_product, element);
                return take(lanes, s);
            }
            zeros = true;
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) exact[j] = counted(exact[j], equal[j]);
        return zeros;
    }

    // s = R(s + the product k). Returns whether there are zeros.
    INL_MEMBER bool step(int64_t k, Value& s) {
        const V av = splat<C32>(a[k * MR]);
        Value y, x, r;
        UsualSums<TO_NEAREST> usual(of_product.k);
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            y[j] = load<V>(b + k * nr + j * C32::L);
            x[j] = vfma(av, y[j], s[j]);
            usual.check(x[j], j == 0);
            r[j] = of_product.k.round<TO_NEAREST>(x[j], (C32::VU){});
        }
        if (__builtin_expect(!usual.all(), 0)) return unusual_step(k, y, x, r, s);
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            swamped[j] = counted(swamped[j], same_bits(r[j], s[j]));
            s[j] = r[j];
        }
        return false;
    }

    // The same where something may be rare, or where only a product is zero. `r` is x rounded.
    bool unusual_step(int64_t k, const Value& y, const Value& x, const Value& r, Value& s) {
        const V av = splat<C32>(a[k * MR]), zero = {};
        Mask same[NV], equal[NV], rare = {}, zeros = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            const Mask nothing = either(equals(av, zero), equals(y[j], zero));
            UsualSums<TO_NEAREST> usual(of_product.k);
            usual.check(x[j], true);
            equal[j] = equals(x[j], r[j]);
            same[j] = but(equals(r[j], s[j]), nothing);
            zeros = either(zeros, equals(r[j], zero));
            rare = either(rare, either(same_bits(s[j], -zero), but(usual.rare(), both(nothing, equal[j]))));
        }
        if (any(rare)) {
            Lanes<C32> lanes = lanes_of(s);
            recount_step(lanes, a[k * MR], b + k * nr, of_product, element);
            return take(lanes, s);
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            swamped[j] = counted(swamped[j], same[j]);
            exact[j] = counted(exact[j], equal[j]);
            s[j] = r[j];
        }
        return any(zeros);
    }

    // right = R(left + right). `zeros`: whether these have any. Returns whether the result has any.
    INL_MEMBER bool pair(const Value& left, Value& right, bool zeros) {
        const V zero = {};
        Value sum, r;
        Mask same[NV], equal[NV];
        VI place = {};
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            sum[j] = left[j] + right[j];
            r[j] = of_sum.k.round<TO_NEAREST>(sum[j], (C32::VU){});
            same[j] = same_bits(r[j], left[j]);
            equal[j] = but(but(same_bits(r[j], sum[j]), same[j]), same_bits(r[j], right[j]));
            place = j ? imax(place, of_sum.range.place(sum[j])) : of_sum.range.place(sum[j]);
        }
        bool some = any(exceeds(place, of_sum.range.limit));
        if (__builtin_expect(zeros || some, 0)) {
            Mask rare = {}, none = {};
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                r[j] = of_sum.k.with_sign_of(r[j], sum[j]);
                const Mask nothing = equals(sum[j], zero), left_one = equals(left[j], zero), right_one = equals(right[j], zero);
                same[j] = but(equals(r[j], left[j]), right_one);
                equal[j] = but(but(equals(r[j], sum[j]), same[j]), but(equals(r[j], right[j]), left_one));
                none = either(none, nothing);
                rare = either(rare, but(exceeds(of_sum.range.place(sum[j]), of_sum.range.limit), nothing));
            }
            some = any(none);
            if (__builtin_expect(any(rare), 0)) {
                Lanes<C32> lanes = lanes_of(left);
                Value x;
#pragma GCC unroll 2
                for (int j = 0; j < NV; ++j) x[j] = right[j];
                recount_pair(lanes, x, of_sum, element);
                return take(lanes, right);
            }
        }
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            right[j] = r[j];
            swamped[j] = counted(swamped[j], same[j]);
            exact[j] = counted(exact[j], equal[j]);
        }
        return some;
    }

    // s = the sum of the segment of terms [k, end). Returns whether there are zeros.
    template <bool SINGLE> INL_MEMBER bool base_case(int64_t k, int64_t end, Value& s) {
        bool zeros = product(k, s);
        if (!SINGLE)
            while (++k < end) zeros = step(k, s);
        return zeros;
    }

    // The tree of summation_orders.h for n terms in segments of `size`. One sum waits for each set bit of the number of segments so far.
    template <bool SINGLE> INL_MEMBER void run(int64_t n, int64_t size, Value& s) {
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
        int64_t k = 0, made = 0;
        for (; k + size < n; k += 2 * size) {
            Value left;
            const bool before = base_case<SINGLE>(k, k + size, left),
                       after = base_case<SINGLE>(k + size, k + 2 * size < n ? k + 2 * size : n, s);
            zeros = pair(left, s, before || after);
            for (int64_t pairs = made++; pairs & 1; pairs >>= 1) join();
            put();
        }
        if (k < n) {
            zeros = base_case<SINGLE>(k, n, s);
            put();
        }
        zeros = with_zeros[--used];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) s[j] = waits[used][j];
        while (used) join();
    }
};

template <bool SINGLE> static __attribute__((noinline)) void count_pairs_of_row(const Tile& t, int nr, int row, int64_t size,
                                                                                const PairCast& of_product, const PairCast& of_sum) {
    const PairCast product = of_product, sum = of_sum;  // copies, which calls do not change
    const int64_t element = row * (int64_t)nr;
    CountedPairs tree = {(const float*)t.a + row, (const float*)t.b, nr, product, sum, element, {}, {}};
    CountedPairs::Value s;
    tree.run<SINGLE>(t.k, size, s);
    store_lanes<C32>(tree.lanes_of(s), (float*)t.c + element, sum.into, element, t.k + (t.k - 1) / size);
}

// Adds a tile's terms in segments of `size`, and combines their sums in pairs, which `cast` rounds.
static void count_pairs(const Tile& t, int nr, int64_t size, const Cast& cast, const EventTile& products, const EventTile& sums) {
    const ExactCount add = {*t.add, products.least}, combination = {cast, sums.least};
    const PairCast of_product(add, products, products.least > LEAST_PRODUCT ? products.least : LEAST_PRODUCT),
        of_sum(combination, sums, sums.least);
    for (int row = 0; row < t.rows; ++row)
        size == 1 ? count_pairs_of_row<true>(t, nr, row, size, of_product, of_sum)
                  : count_pairs_of_row<false>(t, nr, row, size, of_product, of_sum);
}

}  // namespace gemmsim::NS
#endif
