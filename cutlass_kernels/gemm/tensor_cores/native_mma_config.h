// The configuration of products by a chip's own matrix instruction, in the order that `hw(...)` means. InstructionConfig is known when
// a kernel is compiled, and InstructionArgs when it is launched.
#pragma once
#include "gemmsim/device/block.h"
#include "gemmsim/device/storage.h"

namespace gemmsim {

// Operand formats as they are stored. TF32 is stored in the words of binary32.
enum class Element : int32_t { F16, BF16, TF32, E4M3, E5M2 };
// The threads that issue an instruction: a warp (mma.sync), a warp group (wgmma), or one warp for its block (tcgen05).
enum class Issue : int32_t { WARP, WARP_GROUP, BLOCK };

// `promoted`: the number of instructions in a chain from +0 whose result is added to a register of binary32. It is 0 where one chain
// computes an output.
struct InstructionConfig {
    Issue issue;
    Element a, b;
    bool half_register;
    int promoted;
};

// Lines are rows of A and columns of B. The terms of a line are contiguous. Each line starts at a multiple of 16 bytes and is filled
// up with zeros to such a multiple. The result is the register, so that a self-check compares all of its bits. Strides of operands
// are in bytes, strides of the result in elements. gemmsim/backends/cuda/tensor_cores/native_mma.py mirrors this record.
struct InstructionArgs {
    const uint8_t *a, *b;
    float* out;
    int64_t m, n, k, a_row, b_row, a_batch, b_batch, out_row, out_batch, tiles_m;
};

constexpr int INSTRUCTION_THREADS = 256, INSTRUCTION_M = 128, INSTRUCTION_N = 128, INSTRUCTION_LINE = 128;
constexpr int INSTRUCTION_CHUNK_BYTES = INSTRUCTION_M * INSTRUCTION_LINE;  // bytes of one operand
static_assert(INSTRUCTION_M == INSTRUCTION_N);

GEMMSIM_HD constexpr int element_bytes(Element e) { return e == Element::TF32 ? 4 : e == Element::F16 || e == Element::BF16 ? 2 : 1; }
// The number of terms of one instruction: it takes 32 bytes of a line.
GEMMSIM_HD constexpr int instruction_terms(Element e) { return 32 / element_bytes(e); }

// The number of chunks in shared memory for warps' instructions. The smallest shared memory (99 kB, sm_89 and sm_120) has room for 3.
constexpr int INSTRUCTION_STAGES = 3;

}  // namespace gemmsim
