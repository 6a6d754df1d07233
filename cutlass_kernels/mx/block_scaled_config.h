// Products of block formats on tensor cores: what is known when a kernel is compiled, and when it is launched.
#pragma once
#include "gemmsim/device/block.h"
#include "mx/vector_io.h"
#include "mx/block_scaled_sums.h"

namespace gemmsim {

// How the tensor cores multiply a chunk of terms. WARP and WARP_GROUP decode values to bfloat16 and use the instruction of a warp
// (sm_80 and newer) or of a warp group (sm_90a). BLOCK_SCALED passes codes and scales as stored to a block-scaled instruction of a
// warp (sm_120a). TENSOR_MEMORY does so with an instruction of a block (sm_100a), whose sums lie in tensor memory.
enum class TensorRoute : int32_t { WARP, WARP_GROUP, BLOCK_SCALED, TENSOR_MEMORY };

struct TensorConfig {
    TensorRoute route;
    DType out;
    Packing packing_a, packing_b;  // BYTES or LOW_FIRST
    MxFormat a, b;
};

// The terms of each row of A and of each column of B are contiguous. Strides are the bytes between rows of codes and of scales, and
// the elements between rows of the result. gemmsim/backends/cuda/tensor_cores/block_scaled_mma.py mirrors this record.
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

// The 32 terms of one line of a chunk that a thread loads: packed codes, and one scale for every 16 of them.
template <MxFormat F, Packing P> struct TensorLine {
    static constexpr int TERMS = 32, BYTES = TERMS * code_width(P) / 8;
    static_assert(F.block % 16 == 0 && (P == Packing::BYTES || P == Packing::LOW_FIRST));
    Codes<P, 8> codes[TERMS / 8];
    uint32_t scale[2];

    // Loads the terms from `first` on. Terms beyond the line's end are zeros, and so are all if the line does not exist.
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

    // Eight neighbouring values in bfloat16. Each product of element and scale is rounded once.
    GEMMSIM_HD MxPack<uint32_t, 4> values(int i) const {
        const float factor = scale_value<F>(scale[i / 2]);
        float y[8];
        GEMMSIM_UNROLL for (int j = 0; j < 8; ++j) y[j] = scaled_value<F>(codes[i].code(j), factor);
        return packed_numbers<BF16>(y);
    }
};

}  // namespace gemmsim
