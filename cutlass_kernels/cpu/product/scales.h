// This file has the scales of block formats, which are stored apart from the operands' elements. There is one scale for
// each block of terms of each row of A and each column of B.
#pragma once
#include "isa_table.h"

namespace gemmsim {

struct Scales {
    const double *a, *b;                        // the scales themselves; NaN for a NaN block
    int64_t a_row, a_block, b_block, b_col;     // strides
    int64_t a_size, b_size, a_count, b_count;   // terms in a block, blocks along k
    double fill;                                // scale of the blocks that pad K to a multiple of an instruction's
    double tensor;                              // product of the tensors' own scales
    int32_t has_tensor, narrow;                 // narrow: products of two scales are exact and normal in float
    int32_t emin, reserved;                     // exponent of the scale format's smallest normal
    const int64_t* batch;                       // two rows of batch_dims: strides of a and b
};

// The scales of one tile.
struct TileScales {
    const Scales* all = nullptr;  // null: none
    const double *a = nullptr, *b = nullptr;

    double left(int row, int64_t k) const { return one(a + row * all->a_row, k / all->a_size, all->a_block, all->a_count); }
    double right(int col, int64_t k) const { return one(b + col * all->b_col, k / all->b_size, all->b_block, all->b_count); }
    double one(const double* x, int64_t block, int64_t stride, int64_t count) const {
        return block < count ? x[block * stride] : all->fill;
    }
};

// How s = R(s + xa * xb * t) is computed. SCALE_NATIVE: by the carrier's fused multiply-add. SCALE_WIDE: in double
// lanes, where products are exact. SCALE_SCALAR: one element at a time.
enum ScaleStep : int { SCALE_NATIVE, SCALE_WIDE, SCALE_SCALAR };

// The scales of one tile as block-scaled instructions take them, without signs. Each `size` terms, padding included,
// have MR scales of rows and nr of columns, with the exponents that align (hardware_exponent).
struct GroupScales {
    const double *a, *b;
    const int32_t *a_exponent, *b_exponent;
    int64_t size;
};

// The kernels of one instruction set.
struct ScaleKernels {
    // Adds MR rows of nr carrier values with MR and nr scales. `how` is SCALE_NATIVE or SCALE_WIDE.
    void (*add)(int carrier, void* s, const void* t, int nr, const double* xa, const double* xb, const Cast& c, int how);
    // x = R(factor * x) for n carrier values (whole vectors), for casts that `add` accepts as SCALE_WIDE.
    void (*times)(int carrier, void* x, int64_t n, double factor, const Cast& c);
    // Float lanes: sums segments of n fused multiply-adds from 0 and adds them to the tile's c as SCALE_NATIVE does.
    // For each `block` terms there are MR scales of rows and nr of columns, stored block after block.
    void (*groups)(const Tile& t, int64_t n, int64_t block, const float* xa, const float* xb);
    // Steps of a block-scaled instruction along the tile's k, for finite float panels, scales and registers, and
    // out=rz23.
    void (*instructions)(const Tile& t, const HardwareModel& m, const GroupScales& scales);
};

const ScaleKernels& scale_kernels_baseline();
const ScaleKernels& scale_kernels_neon();
const ScaleKernels& scale_kernels_avx2();
const ScaleKernels& scale_kernels_avx512();

}  // namespace gemmsim
