// Products of block formats on tensor cores: what is known when a kernel is compiled, and when it is launched.
#pragma once
#include "gemmsim/device/block.h"
#include "mx/vector_io.h"
#include "mx/block_scaled_sums.h"

namespace gemmsim {

// How a chunk of terms is multiplied: values decoded to bfloat16, by a warp's instruction (sm_80 on) or a warp group's
// (sm_90a); codes and scales as they are, by a block-scaled instruction of a warp (sm_120a), or of a block (sm_100a), with sums in
// tensor memory.
enum class TensorRoute : int32_t { WARP, WARP_GROUP, BLOCK_SCALED, TENSOR_MEMORY };

struct TensorConfig {
    TensorRoute route;
    DType out;
    Packing packing_a, packing_b;  // BYTES or LOW_FIRST
    MxFormat a, b;
};

// Rows of A and columns of B with their terms side by side; gemmsim/backends/cuda/tensor_cores/block_scaled_mma.py mirrors this record.
// Strides: bytes between rows of codes and of scales, elements between rows of the result.
struct TensorArgs {
    const uint8_t *a, *b, *scale_a, *scale_b;
    const float *second_a, *second_b;
    void* out;
    int64_t m, n, k, a_row, b_row, scale_a_row, scale_b_row, out_row;
};

constexpr int TENSOR_THREADS = 256, TENSOR_M = 128, TENSOR_N = 128, TENSOR_K = 64;
constexpr int TENSOR_TILE_BYTES = TENSOR_M * TENSOR_K * 2;
static_assert(TENSOR_M == TENSOR_N);

template <TensorConfig K> GEMMSIM_HD float with_tensor_scales(float y, const TensorArgs& g) {
    return times_tensor_scales<K.a.tensor_scale != 0, K.b.tensor_scale != 0>(y, g.second_a, g.second_b);
}

// The 32 terms of one line of a chunk that a thread brings: packed codes and, of each 16, the scale.
template <MxFormat F, Packing P> struct TensorLine {
    static constexpr int TERMS = 32, BYTES = TERMS * code_width(P) / 8;
    static_assert(F.block % 16 == 0 && (P == Packing::BYTES || P == Packing::LOW_FIRST));
    Codes<P, 8> codes[TERMS / 8];
    uint32_t scale[2];

    // From `first` on; beyond the line's end, or without a line, zeros.
    GEMMSIM_HD void fetch(const uint8_t* line, const uint8_t* scales, int64_t first, int64_t k, bool exists) {
        GEMMSIM_UNROLL for (int i = 0; i < TERMS / 8; ++i) {
            const int64_t at = first + 8 * i;
            if (exists && at + 8 <= k) codes[i] = Codes<P, 8>::read(line + at * code_width(P) / 8);
            else codes[i] = partial(line, at, exists ? k : 0);
        }
        GEMMSIM_UNROLL for (int i = 0; i < 2; ++i) scale[i] = exists && first + 16 * i < k ? scales[(first + 16 * i) / F.block] : 0u;
    }

    static GEMMSIM_HD Codes<P, 8> partial(const uint8_t* line, int64_t at, int64_t k) {
        Codes<P, 8> found = {};
        GEMMSIM_UNROLL for (int j = 0; j < 8; ++j) {
            if (at + j >= k) continue;
            const uint32_t code = P == Packing::BYTES ? line[at + j] : (uint32_t)line[(at + j) / 2] >> (4 * ((at + j) % 2)) & 15u;
            found.word[j / Codes<P, 8>::GROUP] |= code << Codes<P, 8>::shift(j);
        }
        return found;
    }

    // Eight neighbouring values in bfloat16, each product rounded once.
    GEMMSIM_HD MxPack<uint32_t, 4> values(int i) const {
        const float factor = scale_value<F>(scale[i / 2]);
        float y[8];
        GEMMSIM_UNROLL for (int j = 0; j < 8; ++j) y[j] = scaled_value<F>(codes[i].code(j), factor);
        return packed_numbers<BF16>(y);
    }
};

}  // namespace gemmsim
