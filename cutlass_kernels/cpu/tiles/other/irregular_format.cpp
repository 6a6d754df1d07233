// Tiles of registers in irregular value sets (gemmsim/grid.h), in double lanes. Every step is rounded to odd and then by the cast.
// The planner (grid_lanes in kernel_choice.h) makes sure that a step loses nothing that decides a rounding. Compiled once per
// instruction set.
#include "tiles/random_bits.h"
#include "tiles/other/irregular_format.h"

namespace gemmsim::NS {

typedef GridRounder<C64> Rounder;

template <bool FUSED, bool RANDOM, int ROWS>
static __attribute__((noinline)) void grid_rows(const Tile& t, int row, const Rounder& mul, const Rounder& add) {
    typedef C64::V V;
    typedef C64::VU VU;
    const double *a = (const double*)t.a + row, *b = (const double*)t.b;
    double* c = (double*)t.c + row * NV * C64::L;
    const int rm = !FUSED && mul.k.random ? mul.k.rbits : 0, ra = add.k.random ? add.k.rbits : 0;
    const int nm = rm > 16 ? 4 : 8, na = ra > 16 ? 4 : 8;
    Draws<C64, ROWS> dm, da;
    V s[ROWS][NV];
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C64::L);
    for (int64_t k = 0; k < t.k; ++k) {
        const int64_t at = t.k0 + k;
        if (RANDOM && rm && (k == 0 || at % nm == 0)) dm.make(t, row, (uint32_t)(at / nm), SITE_PRODUCT);
        if (RANDOM && ra && (k == 0 || at % na == 0)) da.make(t, row, (uint32_t)(at / na), SITE_ADD);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; ++i) {
            const V av = splat<C64>(a[k * MR + i]);
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                const V bv = load<V>(b + (k * NV + j) * C64::L);
                const VU xm = RANDOM && rm ? dm.get(i, j, (int)(at % nm), rm) : (VU){};
                const VU xa = RANDOM && ra ? da.get(i, j, (int)(at % na), ra) : (VU){};
                const V sum = FUSED ? fma_odd<C64>(av, bv, s[i][j]) : add_odd<C64>(s[i][j], mul.template round<RANDOM>(av * bv, xm));
                s[i][j] = add.template round<RANDOM>(sum, xa);
            }
        }
    }
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C64::L, s[i][j]);
}

template <bool FUSED, bool RANDOM> static void grid_run(const Tile& t) {
    const Rounder mul = Rounder::make(FUSED ? *t.add : *t.mul), add = Rounder::make(*t.add);
    int row = 0;
    for (; row + 2 <= t.rows; row += 2) grid_rows<FUSED, RANDOM, 2>(t, row, mul, add);
    if (row < t.rows) grid_rows<FUSED, RANDOM, 1>(t, row, mul, add);
}

// Adds all terms of the tile in order. The tile has doubles, and the products of its operands are exact.
void grid_tile(const Tile& t, bool fused) {
    const bool random = t.add->mode == SR || (!fused && t.mul->mode == SR);
    if (fused) random ? grid_run<true, true>(t) : grid_run<true, false>(t);
    else random ? grid_run<false, true>(t) : grid_run<false, false>(t);
}

// s = R(s + t) on n doubles (whole vectors), with a deterministic cast.
void grid_combine(double* s, const double* t, int64_t n, const Cast& c) {
    const Rounder rounder = Rounder::make(c);
    for (int64_t i = 0; i < n; i += C64::L)
        store(s + i, rounder.template round<false>(add_odd<C64>(load<C64::V>(s + i), load<C64::V>(t + i)), (C64::VU){}));
}

}  // namespace gemmsim::NS
