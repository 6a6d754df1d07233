// The accumulator type of an atom: a number, or a number that stores its place in the product, which determines its random bits.
#pragma once
#include <cute/tensor.hpp>
#include "gemmsim/cute/step.h"
#include "gemmsim/device/draws.h"

namespace gemmsim {

// The element (row, col) of the product before term k.
template <StepConfig K> struct PlacedRegister {
    typedef typename Step<K>::T T;
    T value;
    uint32_t k;
    Place2D place;
    HeldDraws<K.mul, SITE_PRODUCT, (!K.fused && K.mul.mode >= SR)> product;
    HeldDraws<K.add, SITE_ADD> sum;

    GEMMSIM_HD operator T() const { return value; }
    GEMMSIM_HD void start(const Place2D& where, uint32_t first) {
        value = 0;
        k = first;
        place = where;
        product.start();
        sum.start();
    }
    // Adds the term a b to `s`, which is this register's value or a partial sum of its element.
    template <class STEP> GEMMSIM_HD T step(T s, T a, T b) {
        const uint32_t rm = product.draw(place, k), ra = sum.draw(place, k);
        ++k;
        return STEP::step(s, a, b, rm, ra);
    }
    GEMMSIM_HD uint32_t draw(uint32_t index, int site, int bits) const {
        return draw_step(place.seed, place.row, place.col, index, site, bits);
    }
};

template <class X> struct RegisterFacts {
    static constexpr bool PLACED = false;
};
template <StepConfig K> struct RegisterFacts<PlacedRegister<K>> {
    static constexpr bool PLACED = true;
};

// The type of an accumulator.
template <StepConfig K, bool PLACED> struct RegisterOf {
    typedef typename Step<K>::T type;
};
template <StepConfig K> struct RegisterOf<K, true> {
    typedef PlacedRegister<K> type;
};

// Sets all registers of a thread to +0, before term `k`. `places`: the result of partition_C for an identity tensor of the block's
// tile, whose first element is (row0, col0) of the product. Rows count those of all batches (docs/reference/random_bits.md).
template <class ACC, class PLACES>
GEMMSIM_HD void start(ACC&& acc, const PLACES& places, uint64_t seed = 0, uint64_t row0 = 0, uint32_t col0 = 0, uint32_t k = 0) {
    typedef typename cute::remove_cvref_t<ACC>::value_type X;
    CUTE_UNROLL
    for (int i = 0; i < cute::size(acc); ++i) {
        if constexpr (RegisterFacts<X>::PLACED) {
            const auto at = places(i);
            acc(i).start(Place2D{seed, row0 + (uint64_t)cute::get<0>(at), col0 + (uint32_t)cute::get<1>(at)}, k);
        } else acc(i) = X(0);
    }
}

template <class X> GEMMSIM_HD auto value_of(const X& x) {
    if constexpr (RegisterFacts<X>::PLACED) return x.value;
    else return x;
}

template <class X, class T> GEMMSIM_HD void set_value(X& x, T value) {
    if constexpr (RegisterFacts<X>::PLACED) x.value = value;
    else x = value;
}

}  // namespace gemmsim
