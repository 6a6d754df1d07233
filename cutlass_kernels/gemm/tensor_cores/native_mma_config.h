// Products by a chip's own matrix instruction, in the order that `hw(...)` means: what is known when a kernel is compiled, and
// when it is launched.
#pragma once
#include "gemmsim/device/block.h"
#include "gemmsim/device/storage.h"

namespace gemmsim {

// Operand formats as they are stored: TF32 in the words of binary32.
enum class Element : int32_t { F16, BF16, TF32, E4M3, E5M2 };
// Who issues the instruction: a warp (mma.sync), a warp group (wgmma), or one warp for its block (tcgen05).
enum class Issue : int32_t { WARP, WARP_GROUP, BLOCK };

// promoted: instructions whose chain starts from +0 and is then added to a register of binary32; 0 for one chain.
struct InstructionConfig {
    Issue issue;
    Element a, b;
    bool half_register;
    int promoted;
};

// Rows of A and columns of B, their terms side by side in lines that start at multiples of 16 bytes and are filled up with
// zeros to such; gemmsim/backends/cuda/tensor_cores/native_mma.py mirrors this record. The result is the register, so that a check sees
// all of it. Strides: bytes of operands, elements of the result.
struct InstructionArgs {
    const uint8_t *a, *b;
    float* out;
    int64_t m, n, k, a_row, b_row, a_batch, b_batch, out_row, out_batch, tiles_m;
};

constexpr int INSTRUCTION_THREADS = 256, INSTRUCTION_M = 128, INSTRUCTION_N = 128, INSTRUCTION_LINE = 128;
constexpr int INSTRUCTION_CHUNK_BYTES = INSTRUCTION_M * INSTRUCTION_LINE;  // of one operand
static_assert(INSTRUCTION_M == INSTRUCTION_N);

GEMMSIM_HD constexpr int element_bytes(Element e) { return e == Element::TF32 ? 4 : e == Element::F16 || e == Element::BF16 ? 2 : 1; }
// Terms of one instruction: 32 bytes of a line.
GEMMSIM_HD constexpr int instruction_terms(Element e) { return 32 / element_bytes(e); }

// Chunks of shared memory for warps' instructions: as many as the smallest one holds (99 kB, sm_89 and sm_120).
constexpr int INSTRUCTION_STAGES = 3;

}  // namespace gemmsim
