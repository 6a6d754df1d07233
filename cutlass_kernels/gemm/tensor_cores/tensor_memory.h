// Access to the tensor memory of sm_100a: allocation, barriers, and the fences that order its use. tcgen05.h and
// mx/block_scaled_tcgen05.h use it. Source: PTX ISA, "tensor memory" and "tcgen05 memory consistency model".
#pragma once
#include "gemm/tensor_cores/tensor_memory_ops.h"
#include "mx/block_scaled_descriptors.h"

namespace gemmsim {

struct TensorMemory : TensorMemoryOps {
    // Stores +0 in N columns of this warp's 32 lanes. What follows the next barrier sees these zeros.
    template <int N> static GEMMSIM_HD void clear(uint32_t at) {
        GEMMSIM_UNROLL for (int i = 0; i < N; i += 8) zero(at + i);
        stored();
        before_sync();
    }

    // Allocates columns for a block and initialises its barriers. `place` is the word of shared memory that receives their address.
    static GEMMSIM_HD uint32_t open(int tid, int columns, uint32_t* place, uint64_t* barriers, int count) {
        if (tid < 32) {
            cute::TMEM::Allocator1Sm memory;
            memory.allocate(columns, place);
            memory.release_allocation_lock();
        }
        if (tid == 0) {
            for (int i = 0; i < count; ++i) cute::initialize_barrier(barriers[i], 1);
            barriers_made();
        }
        before_sync();
        block_sync();
        after_sync();
        return *(volatile uint32_t*)place;
    }
    static GEMMSIM_HD void close(int tid, int columns, uint32_t memory) {
        before_sync();
        block_sync();
        if (tid < 32) cute::TMEM::Allocator1Sm().free(memory, columns);
    }
};

}  // namespace gemmsim
