// This file transposes lines that are contiguous in memory into panels, whose rows hold one term of each line.
#pragma once
#include <string.h>
#include "gemmsim/program.h"

namespace gemmsim {

// The position of term k in a panel. Null: terms keep their order.
typedef const int64_t* Positions;
inline int64_t place(Positions p, int64_t k) { return p ? p[k] : k; }

// Vectors of 16 bytes, which every supported processor has. `low` and `high` interleave the lower and the upper halves
// of two vectors.
template <class T> struct Quarter;
#if defined(__clang__)
#define GEMMSIM_TURNS(a, b, mask, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define GEMMSIM_TURNS(a, b, mask, ...) __builtin_shuffle(a, b, mask{__VA_ARGS__})
#endif
template <> struct Quarter<float> {
    typedef float V __attribute__((vector_size(16)));
    typedef int32_t Mask __attribute__((vector_size(16)));
    static V low(V a, V b) { return GEMMSIM_TURNS(a, b, Mask, 0, 4, 1, 5); }
    static V high(V a, V b) { return GEMMSIM_TURNS(a, b, Mask, 2, 6, 3, 7); }
};
template <> struct Quarter<double> {
    typedef double V __attribute__((vector_size(16)));
    typedef int64_t Mask __attribute__((vector_size(16)));
    static V low(V a, V b) { return GEMMSIM_TURNS(a, b, Mask, 0, 2); }
    static V high(V a, V b) { return GEMMSIM_TURNS(a, b, Mask, 1, 3); }
};
#undef GEMMSIM_TURNS

template <class T> inline typename Quarter<T>::V load_quarter(const T* p) {
    typename Quarter<T>::V v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Transposes a square of elements in place: v[i] holds line i before and term i afterwards.
inline void turn(Quarter<double>::V* v) {
    typedef Quarter<double> Q;
    const Q::V first = v[0];
    v[0] = Q::low(first, v[1]);
    v[1] = Q::high(first, v[1]);
}
inline void turn(Quarter<float>::V* v) {
    typedef Quarter<float> Q;
    const Q::V a = Q::low(v[0], v[2]), b = Q::low(v[1], v[3]), c = Q::high(v[0], v[2]), d = Q::high(v[1], v[3]);
    v[0] = Q::low(a, b);
    v[1] = Q::high(a, b);
    v[2] = Q::low(c, d);
    v[3] = Q::high(c, d);
}

// Transposes `n` terms, from `first` on, of `lines` lines that lie `pitch` elements apart, into rows of `width`
// elements.
template <bool PLACED, class T>
inline void turn_lines(const T* src, int64_t pitch, int64_t lines, int64_t first, int64_t n, Positions at, T* dst, int64_t width) {
    constexpr int64_t L = 16 / (int64_t)sizeof(T);
    const auto row = [=](int64_t q) { return dst + (PLACED ? at[first + q] : first + q) * width; };
    int64_t line = 0;
    for (; line + L <= lines; line += L) {
        const T* const from = src + line * pitch;
        int64_t q = 0;
        for (; q + L <= n; q += L) {
            typename Quarter<T>::V v[L];
            for (int64_t i = 0; i < L; ++i) v[i] = load_quarter(from + i * pitch + q);
            turn(v);
            for (int64_t r = 0; r < L; ++r) memcpy(row(q + r) + line, &v[r], sizeof v[r]);
        }
        for (; q < n; ++q)
            for (int64_t i = 0; i < L; ++i) row(q)[line + i] = from[i * pitch + q];
    }
    for (; line < lines; ++line)
        for (int64_t q = 0; q < n; ++q) row(q)[line] = src[line * pitch + q];
}

template <class T> inline void lines_to_panel(const T* src, int64_t pitch, int64_t lines, int64_t first, int64_t n, Positions at, T* dst,
                                              int64_t width) {
    if (at) turn_lines<true>(src, pitch, lines, first, n, at, dst, width);
    else turn_lines<false>(src, pitch, lines, first, n, at, dst, width);
}

}  // namespace gemmsim
