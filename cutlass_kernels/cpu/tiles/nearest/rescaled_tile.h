// Tiles of float lanes whose values are multiplied by a power of two: that one for which the least normal number of the format is 2.
//
// The normal numbers are then those with the highest bit of a float's exponent, so that whether all of several sums are is known
// from the AND of them, one instruction a vector (checks.h). The planner says by what to multiply (Tile::lift), where nothing leaves
// float's range by it. Roundings and their ties are those of the casts with all their exponents moved: what the machine makes of a
// sum differs only below 2^-126, where it is zero of the format, of the same sign, in either place.
#pragma once
#include "tiles/rounders.h"

#if ISA_AVX2 || ISA_AVX512
namespace gemmsim::NS {

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

// A tile with the casts of lifted values and, while this lives, lifted registers; its panel of A is so already.
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
