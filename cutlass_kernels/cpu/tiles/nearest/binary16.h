// What a processor with multiply-adds of binary16 adds to AVX-512: registers of that format from operands that are its numbers.
#pragma once
#include "isa_table.h"

namespace gemmsim {

struct Binary16 {
    // n floats, numbers of binary16 (rounded up to a multiple of 16), in place: each twice, as its lane of 32 bits is spread over a vector
    void (*pack)(float* x, int64_t n);
    // tiles together, all rows, from +0, as MultiTile::FP16 has them
    void (*tiles)(const Tile& t, const MultiTile& how);
};

const Binary16* binary16_avx512();  // null: not this processor, or not of this compiler

}  // namespace gemmsim
