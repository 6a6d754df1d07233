// Runs a chosen kernel on the terms of a tile, for kernels that need nothing of the orders around them.
#pragma once
#include <vector>
#include "product/kernel_table.h"
#include "product/scalar.h"

namespace gemmsim {

// Whether a matrix instruction fills up the last step of a run of k terms with zero products.
inline bool is_filled_up(const Request& r, int64_t k) { return r.hardware.kind != HW_NONE && k % r.hardware.k != 0; }
// Zero products turn a register of -0 into +0.
template <class T> inline void fill_up(T* c, int64_t n) {
    for (int64_t i = 0; i < n; ++i) c[i] += (T)0;
}

// Adds the terms of a plain register, by one of the kernels that take them tile by tile.
template <class T>
inline void plain_run(const Isa& isa, const Request& r, Kernel kernel, const Choice& c, const Parts<T>& parts, int nr) {
    if (kernel == Kernel::SCALAR) return scalar_run<T>(parts, r, nr);
    if (kernel == Kernel::IRREGULAR) return parts.each([&](const Tile& part) { isa.grids(part, r.fused); });
    const TileFn function = tile_function(isa, kernel, c);
    parts.each([&](const Tile& part) { function(part); });
}

// Steps of a matrix instruction for tiles of doubles, which partial sums in double need. Operands and registers of instructions still are
// numbers of float.
inline void instructions_in_floats(const Isa& isa, const Tile& t, int nr, const HardwareModel& m, const Choice& c) {
    const int wide = isa.nr[0];
    std::vector<float> a((size_t)(t.k * MR)), b((size_t)(t.k * wide), 0.0f);
    alignas(64) float sums[MR * 64] = {};
    for (int i = 0; i < t.rows; ++i)
        for (int j = 0; j < nr; ++j) sums[i * wide + j] = (float)((const double*)t.c)[i * nr + j];
    for (int64_t i = 0; i < t.k * MR; ++i) a[(size_t)i] = (float)((const double*)t.a)[i];
    for (int64_t k = 0; k < t.k; ++k)
        for (int j = 0; j < nr; ++j) b[(size_t)(k * wide + j)] = (float)((const double*)t.b)[k * nr + j];
    Tile f = t;
    f.a = a.data();
    f.b = b.data();
    f.c = sums;
    isa.hardware(f, m, c.kept, c.carrier == 1);
    for (int i = 0; i < t.rows; ++i)
        for (int j = 0; j < nr; ++j) ((double*)t.c)[i * nr + j] = (double)sums[i * wide + j];
}

}  // namespace gemmsim
