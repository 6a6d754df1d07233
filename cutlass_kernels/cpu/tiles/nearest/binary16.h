// The kernels that AVX512-FP16 adds to AVX-512: registers of binary16 for operands that are numbers of binary16 (MultiTile::FP16).
// uses_fp16 in product/kernel_choice.h says when they are chosen.
#pragma once
#include "isa_table.h"

namespace gemmsim {

struct Binary16 {
    // Packs n floats that are numbers of binary16, in place; n is rounded up to a multiple of 16. Each number is stored twice in its
    // 32 bits, because a kernel spreads lanes of 32 bits over a vector.
    void (*pack)(float* x, int64_t n);
    // Computes several tiles in one call, with all rows, from +0, in the layout of MultiTile::FP16.
    void (*tiles)(const Tile& t, const MultiTile& how);
};

const Binary16* binary16_avx512();  // null where the processor or the compiler has no AVX512-FP16

}  // namespace gemmsim
