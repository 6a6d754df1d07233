// The configuration of products by warp groups' instructions (wgmma.h, sm_90a). GroupConfig is known when a kernel is compiled, and
// GroupArgs when it is launched. Ring says which place of shared memory a chunk has.
#pragma once
#include "gemm/tensor_cores/native_mma_config.h"
#include "gemmsim/device/round_to_odd.h"

namespace gemmsim {

// `period`: the number of instructions in a chain from +0 whose result is added to a register of binary32. It is 0 where one chain
// computes an output. `scaled`: each such partial sum is multiplied by the scales of its terms, and its sum with the register is
// rounded once.
struct GroupConfig {
    Element a, b;
    bool half_register;
    int period;
    bool scaled;
};

// The maps of TMA describe the lines of an operand: (bytes of a line, lines, batches). Scales are in binary32. There is one for the
// terms of each `period` instructions, and those of a line are contiguous. A step is 0 where all batches share an operand, else 1.
// Strides are in elements. gemmsim/backends/cuda/tensor_cores/wgmma.py mirrors this record.
struct alignas(64) GroupArgs {
    uint8_t map_a[128], map_b[128];
    float* out;
    const float *scale_a, *scale_b;
    int64_t m, n, k, out_row, out_batch, scale_a_row, scale_b_row, scale_a_batch, scale_b_batch;
    uint32_t tiles_m;
    int32_t step_a, step_b;
    uint32_t unused[21];
};

// One warp group copies, and two multiply 64 rows of the tile each. Each group gets as many registers as it needs.
constexpr int GROUP_LOADERS = 128, GROUP_THREADS = GROUP_LOADERS + INSTRUCTION_THREADS, GROUP_WARPS = INSTRUCTION_THREADS / 32;
constexpr int LOADER_REGISTERS = 40, GROUP_REGISTERS = 232;
static_assert(GROUP_LOADERS * LOADER_REGISTERS + INSTRUCTION_THREADS * GROUP_REGISTERS <= 65536);
// The number of instructions of a chunk, and the number of chunks in shared memory.
constexpr int GROUP_COUNT = INSTRUCTION_LINE / 32, GROUP_STAGES = 6;

// `stage` is the place of the next chunk. `round` is how often that place had a chunk before, modulo 2. Phase p of a barrier (p from 0)
// is complete when all its arrivals have come p + 1 times. Readers wait for phase `round`, and the writer for the phase before. In the
// first round that earlier phase counts as complete.
template <int STAGES> struct Ring {
    int stage = 0;
    uint32_t round = 0;

    GEMMSIM_HD void next() {
        if (++stage == STAGES) {
            stage = 0;
            round ^= 1u;
        }
    }
    GEMMSIM_HD uint32_t filled() const { return round; }
    GEMMSIM_HD uint32_t left() const { return round ^ 1u; }
};

// Shared memory has the scales of each partial sum of a chunk: first those of the 128 rows, then those of the columns. The scales of
// all columns of one thread's outputs are contiguous: thread t of four has columns 8 j + 2 t and 8 j + 2 t + 1.
constexpr int SCALE_RUN = INSTRUCTION_N / 4 + 4, SCALES_OF_TOTAL = INSTRUCTION_M + 4 * SCALE_RUN;
GEMMSIM_HD constexpr int column_place(int column) { return INSTRUCTION_M + column % 8 / 2 * SCALE_RUN + column / 8 * 2 + column % 2; }

// The row and the column of the tile to which register `i` of a thread belongs. Source: PTX ISA, "register fragments for
// wgmma.mma_async.m64nNk".
GEMMSIM_HD constexpr int group_row(int tid, int i) { return tid / 32 * 16 + tid % 32 / 4 + i / 2 % 2 * 8; }
GEMMSIM_HD constexpr int group_column(int tid, int i) { return i / 4 * 8 + tid % 4 * 2 + i % 2; }

// A scale is near one if it is zero, not finite, or of a magnitude from 2^-63 to 2^63. The product of two finite nonzero scales of this
// kind is normal in binary32. It is exact if both have at most 12 bits.
GEMMSIM_HD bool is_near_one(float scale) {
    const uint32_t magnitude = to_bits(scale) & 0x7FFFFFFFu;
    return magnitude == 0 || magnitude >= 0x7F800000u || (magnitude >= (127u - 63u) << 23 && magnitude <= (127u + 63u) << 23);
}
// Both functions compute S + x t, rounded once. x is the product of the two scales and has at most 24 bits. scaled_near needs an x
// that binary32 represents exactly. scaled_any takes any scales: x t has at most 48 bits, so it is exact in double. The sum rounded to
// odd in double keeps what the last rounding needs.
GEMMSIM_HD float scaled_near(float sum, float t, float a, float b) { return fma_rn(mul_rn(a, b), t, sum); }
GEMMSIM_HD float scaled_any(float sum, float t, float a, float b) {
    return (float)add_odd((double)sum, mul_rn(mul_rn((double)a, (double)b), (double)t));
}

}  // namespace gemmsim
