// Products by warp groups' instructions (wgmma, sm_90a): what is known when a kernel is compiled and when it is launched, and which
// place of shared memory belongs to which chunk.
#pragma once
#include "gemm/tensor_cores/native_mma_config.h"
#include "gemmsim/device/round_to_odd.h"

namespace gemmsim {

// period: instructions whose chain starts from +0 and is then added to a register of binary32; 0 for one chain. scaled: each such
// total is multiplied by the scales of its terms first, and the sum rounded once.
struct GroupConfig {
    Element a, b;
    bool half_register;
    int period;
    bool scaled;
};

// The maps of TMA say where the lines of an operand lie: (bytes of a line, lines, batches). Scales in binary32, one for each `period`
// of terms, those of a line side by side. Steps: 0 where all batches share an operand, else 1. Strides in elements.
// gemmsim/backends/cuda/tensor_cores/wgmma.py mirrors this record.
struct alignas(64) GroupArgs {
    uint8_t map_a[128], map_b[128];
    float* out;
    const float *scale_a, *scale_b;
    int64_t m, n, k, out_row, out_batch, scale_a_row, scale_b_row, scale_a_batch, scale_b_batch;
    uint32_t tiles_m;
    int32_t step_a, step_b;
    uint32_t unused[21];
};

// A warp group that brings, and two that multiply: 64 rows of the tile each. Registers are shared out by what they need.
constexpr int GROUP_LOADERS = 128, GROUP_THREADS = GROUP_LOADERS + INSTRUCTION_THREADS, GROUP_WARPS = INSTRUCTION_THREADS / 32;
constexpr int LOADER_REGISTERS = 40, GROUP_REGISTERS = 232;
static_assert(GROUP_LOADERS * LOADER_REGISTERS + INSTRUCTION_THREADS * GROUP_REGISTERS <= 65536);
// Instructions of a chunk, and chunks that shared memory holds.
constexpr int GROUP_COUNT = INSTRUCTION_LINE / 32, GROUP_STAGES = 6;

// Which place the chunk has that is due, and how often the place had one before, modulo 2. A barrier's phase number p is complete
// when it has been arrived at p + 1 times: who reads waits for phase `round`, who writes for the one before, which of the first
// round counts as complete.
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

// Scales of a chunk in shared memory, for each total of it: those of 128 rows, then those of the columns, which a thread's outputs
// have side by side: thread t of four has columns 8 j + 2 t and 8 j + 2 t + 1.
constexpr int SCALE_RUN = INSTRUCTION_N / 4 + 4, SCALES_OF_TOTAL = INSTRUCTION_M + 4 * SCALE_RUN;
GEMMSIM_HD constexpr int column_place(int column) { return INSTRUCTION_M + column % 8 / 2 * SCALE_RUN + column / 8 * 2 + column % 2; }

// Row and column of the tile where register `i` of a thread belongs (PTX ISA, "register fragments for wgmma.mma_async.m64nNk").
GEMMSIM_HD constexpr int group_row(int tid, int i) { return tid / 32 * 16 + tid % 32 / 4 + i / 2 % 2 * 8; }
GEMMSIM_HD constexpr int group_column(int tid, int i) { return i / 4 * 8 + tid % 4 * 2 + i % 2; }

// Scales whose product with any other such is a normal number of binary32, and exact if both have at most 12 bits: zero, NaN, and
// 2^-63 to 2^63.
GEMMSIM_HD bool is_near_one(float scale) {
    const uint32_t magnitude = to_bits(scale) & 0x7FFFFFFFu;
    return magnitude == 0 || magnitude >= 0x7F800000u || (magnitude >= (127u - 63u) << 23 && magnitude <= (127u + 63u) << 23);
}
// S + x t for scales whose product x is exact in binary32, and for any: x t has at most 48 bits, and a sum rounded to odd in double
// keeps what the last rounding needs.
GEMMSIM_HD float scaled_near(float sum, float t, float a, float b) { return fma_rn(mul_rn(a, b), t, sum); }
GEMMSIM_HD float scaled_any(float sum, float t, float a, float b) {
    return (float)add_odd((double)sum, mul_rn(mul_rn((double)a, (double)b), (double)t));
}

}  // namespace gemmsim
