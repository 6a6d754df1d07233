// Tiles of float lanes with rescaled values: a power of two multiplies them so that the least normal number of the format is 2.
//
// The normal numbers are then those that have the highest bit of a float's exponent. So the AND of several sums says whether all of them
// are normal, by one instruction a vector (checks.h). The planner chooses the power of two (Tile::scaled_by), where no value leaves float's
// range by it. The roundings are those of the casts with all exponents moved, ties included. The hardware's own rounding of a sum differs
// only below 2^-126. There the sum becomes a zero of the format, of the same sign, with and without rescaling.
#pragma once
#include "tiles/rounders.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

// The cast of values that are multiplied by 2^by.
inline gemmsim::Cast rescaled(gemmsim::Cast c, int by) {
    c.emin += by;
    c.emax += by;
    double* const ends[] = {&c.lo, &c.hi, &c.over_neg, &c.over_pos, &c.inf_neg, &c.inf_pos};
    for (double* x : ends) *x *= Const<C32>::power(by);
    return c;
}

INL void times(float* x, int64_t n, C32::V factor) {
    for (int64_t i = 0; i < n; i += C32::L) store(x + i, load<C32::V>(x + i) * factor);
}

// A tile with the casts of rescaled values. Its panel of A is rescaled already; the sums in c are rescaled while the object lives.
struct RescaledTile : Tile {
    static constexpr int64_t SIZE = MR * NV * C32::L;
    const gemmsim::Cast of_mul, of_add;

    explicit RescaledTile(const Tile& t) : Tile(t), of_mul(rescaled(*t.mul, t.scaled_by)), of_add(rescaled(*t.add, t.scaled_by)) {
        mul = &of_mul;
        add = &of_add;
        times((float*)c, SIZE, splat<C32>(Const<C32>::power(scaled_by)));
    }
    ~RescaledTile() { times((float*)c, SIZE, splat<C32>(Const<C32>::power(-scaled_by))); }
    RescaledTile(const RescaledTile&) = delete;
    RescaledTile& operator=(const RescaledTile&) = delete;
};

}  // namespace gemmsim::NS
#endif
