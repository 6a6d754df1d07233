// This file computes exact sums of operands of any range by slices. Each operand is a sum of a few numbers of few bits,
// the slices, with one quantum for each slice. Double lanes then sum products of slices exactly (Ozaki, Ogita, Oishi,
// Rump, "Error-free transformations of matrix multiplication", Numerical Algorithms 59, 2012). Sums of the same quantum
// share a register. At the end 128-bit integers hold the total, which is rounded once.
#pragma once
#include "product/exact_registers.h"

namespace gemmsim {

inline int log2_above(double x) { return x <= 1 ? 0 : ilogb(x - 1) + 1; }  // for whole numbers

// Chooses slices of w bits if at most MOST for each operand suffice, and 128 bits hold the sum. `longest` is the number
// of terms of the longest segment.
inline Slices choose_slices(const Stats& a, const Stats& b, int64_t longest) {
    Slices s;
    const int top_a = ilogb(a.max_abs) + 1, top_b = ilogb(b.max_abs) + 1;
    if (a.lsb < -450 || b.lsb < -450 || top_a > 450 || top_b > 450) return s;
    const int64_t terms = longest < Slices::FLUSH ? longest : Slices::FLUSH;
    for (int n = 1; n <= Slices::MOST; ++n) {  // at most n products share a register
        const int width = (53 - log2_above((double)terms) - log2_above(n)) / 2;
        const int na = (top_a - a.lsb + width - 1) / width, nb = (top_b - b.lsb + width - 1) / width;
        if ((na < nb ? na : nb) > n) continue;
        const int bits = top_a - a.lsb + top_b - b.lsb + log2_above((double)longest);
        if (na > Slices::MOST || nb > Slices::MOST || bits > 126) return s;
        s.unit = a.lsb + b.lsb;
        s.a = na;
        s.b = nb;
        s.width = width;
        s.top_a = top_a;
        s.top_b = top_b;
        return s;
    }
    return s;
}

template <class T> struct SlicedTile {
    static constexpr int64_t BLOCK = 64;  // terms sliced at a time
    static constexpr int MOST_COLUMNS = 16;  // of a tile in double lanes
    const Isa& isa;
    const Parts<T>& parts;
    const Request& r;
    const Slices& how;
    int nr;
    alignas(64) double a[Slices::MOST * BLOCK * MR], b[Slices::MOST * BLOCK * MOST_COLUMNS];
    int64_t held = 0;  // terms in the registers
    alignas(64) double registers[2 * Slices::MOST - 1][MR * MOST_COLUMNS];
    i128 sums[MR * MOST_COLUMNS];

    SlicedTile(const Isa& isa_, const Parts<T>& terms, const Request& request, const Slices& slices, int columns)
        : isa(isa_), parts(terms), r(request), how(slices), nr(columns) {
        memset(registers, 0, sizeof registers);
        memset(sums, 0, sizeof sums);
    }

    void split(const double* from, int64_t n, int top, int count, double* slices, int64_t stride) const {
        memcpy(slices, from, (size_t)n * sizeof(double));
        for (int i = 0; i + 1 < count; ++i)  // the remainder of slice i becomes slice i + 1
            isa.split(slices + i * stride, slices + (i + 1) * stride, n, 1.5 * ldexp(1.0, 52 + top - how.width * (i + 1)));
    }
    void add_up() {
        const int last = how.a + how.b - 2;
        for (int q = 0; q <= last; ++q) {
            const int grid = how.top_a + how.top_b - how.width * (q + 2), of = grid > how.unit ? grid : how.unit;
            const double unit = ldexp(1.0, -of);
            for (int64_t i = 0; i < MR * nr; ++i) sums[i] += (i128)(int64_t)(registers[q][i] * unit) * ((i128)1 << (of - how.unit));
        }
        memset(registers, 0, sizeof registers);
    }
    __attribute__((noinline)) void add(const Tile& t) {
        Tile part = t;
        int64_t terms = held;
        for (int64_t k = 0; k < t.k; k += BLOCK) {
            const int64_t n = t.k - k < BLOCK ? t.k - k : BLOCK;
            if (terms + n > Slices::FLUSH) {
                add_up();
                terms = 0;
            }
            terms += n;
            split((const double*)t.a + k * MR, n * MR, how.top_a, how.a, a, BLOCK * MR);
            split((const double*)t.b + k * nr, n * nr, how.top_b, how.b, b, BLOCK * nr);
            part.k = n;
            for (int i = 0; i < how.a; ++i)
                for (int j = 0; j < how.b; ++j) {
                    part.a = a + i * BLOCK * MR;
                    part.b = b + j * BLOCK * nr;
                    part.c = registers[i + j];
                    isa.tile[tile_place(Kernel::PLAIN)][1][FMA_NEAR][(int)Rounding::NATIVE](part);
                }
        }
        held = terms;
    }
    void run(int64_t index, int site) {
        const Tile& t = parts.base();
        parts.each([&](const Tile& part) { add(part); });
        add_up();
        for (int i = 0; i < t.rows; ++i)
            for (int j = 0; j < t.cols; ++j) {
                const i128 s = sums[i * nr + j];
                const uint32_t R = r.add.mode >= SR ? draw_step(t.seed, t.row0 + i, t.col0 + j, (uint64_t)index, site, r.add.rbits) : 0;
                parts.out[i * nr + j] =
                    (T)round_exact(Exact{s < 0 ? (u128)0 - (u128)s : (u128)s, s == 0 ? 0 : how.unit, s < 0, false}, r.add, R);
            }
    }
};

}  // namespace gemmsim
