// The sums of some rows of a tile, in CPU registers where they fit.
#pragma once
#include "vec.h"

namespace gemmsim::NS {

enum { NV = 2 };  // vectors per tile row

// ROWS rows of COLS vectors each. All loops are unrolled, since only variables that no index addresses are in CPU registers.
template <class C, int ROWS, int COLS = NV> struct RegisterBlock {
    typedef typename C::V V;
    typedef typename C::T T;
    V v[ROWS][COLS];

    INL_MEMBER V (&operator[](int i)) [COLS] { return v[i]; } INL_MEMBER const V (&operator[](int i) const)[COLS] { return v[i]; }
    // Calls f(i, j) for the vectors, row by row.
    template <class F> static INL_MEMBER void each(F f) {
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 16
            for (int j = 0; j < COLS; ++j) f(i, j);
    }
    // Loads or stores all vectors. The first row is at c, and the others follow at distances of `row` elements.
    INL_MEMBER void get(const T* c, int64_t row = COLS * C::L) {
        each([&](int i, int j) __attribute__((always_inline)) { v[i][j] = load<V>(c + i * row + j * C::L); });
    }
    INL_MEMBER void put(T* c, int64_t row = COLS * C::L) const {
        each([&](int i, int j) __attribute__((always_inline)) { store(c + i * row + j * C::L, v[i][j]); });
    }
    // Calls f(i, j, x, y) for the products x * y of one term: x is element i of `a` in all lanes, and y is vector j of `b`.
    template <class F> static INL_MEMBER void each_product(const T* a, const T* b, F f) {
        V right[COLS];
#pragma GCC unroll 16
        for (int j = 0; j < COLS; ++j) right[j] = load<V>(b + j * C::L);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i) {
            const V left = splat<C>(a[i]);
#pragma GCC unroll 16
            for (int j = 0; j < COLS; ++j) f(i, j, left, right[j]);
        }
    }
};

}  // namespace gemmsim::NS
