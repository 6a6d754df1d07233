// One mma.sync of a warp, by which a probe measures a chip. All rows of A are equal, and so are all columns of B and all elements of C.
// Every output is therefore the same number.
#pragma once
#include "gemmsim/device/block.h"

namespace gemmsim {

// gemmsim/backends/cuda/tensor_cores/one_instruction.py mirrors this record. `a`, `b`: the terms of a row and of a column as the
// instruction stores them, in 32-bit words. `c`: a register of C (for binary16: two halves). `d`: receives the first register of D.
struct OneInstructionArgs {
    const uint32_t *a, *b;
    uint32_t* d;
    uint32_t c, reserved;
};

// Fills the registers of a lane (PTX ISA, matrix fragments). Four neighbouring lanes have consecutive words of a row or column. Two
// consecutive registers of A belong to two rows. FEW: m8n8k4, in which every lane has all terms.
template <bool FEW, int A, int B> GEMMSIM_HD void fragments(const OneInstructionArgs& args, int lane, uint32_t (&a)[A], uint32_t (&b)[B]) {
    for (int i = 0; i < A; ++i) a[i] = args.a[FEW ? i : lane % 4 + i / 2 * 4];
    for (int i = 0; i < B; ++i) b[i] = args.b[FEW ? i : lane % 4 + i * 4];
}

}  // namespace gemmsim
