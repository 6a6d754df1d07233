// One mma.sync of a warp whose rows of A, columns of B and elements of C are all alike, so that every output is: what a probe asks a chip.
#pragma once
#include "gemmsim/device/block.h"

namespace gemmsim {

// gemmsim/backends/cuda/tensor_cores/one_instruction.py mirrors this record. a, b: the terms of a row and of a column as the instruction stores them,
// in 32-bit words; c: a register of C (two halves of binary16); d: where the first register of D goes.
struct OneInstructionArgs {
    const uint32_t *a, *b;
    uint32_t* d;
    uint32_t c, reserved;
};

// Registers of a lane (PTX ISA, matrix fragments). Four lanes have the terms of a row or column side by side, a word each; of A two
// registers in a row belong to two rows. FEW: m8n8k4, in which every lane has all terms.
template <bool FEW, int A, int B> GEMMSIM_HD void fragments(const OneInstructionArgs& args, int lane, uint32_t (&a)[A], uint32_t (&b)[B]) {
    for (int i = 0; i < A; ++i) a[i] = args.a[FEW ? i : lane % 4 + i / 2 * 4];
    for (int i = 0; i < B; ++i) b[i] = args.b[FEW ? i : lane % 4 + i * 4];
}

}  // namespace gemmsim
