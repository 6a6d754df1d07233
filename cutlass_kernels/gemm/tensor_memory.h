// Tensor memory of sm_100a: who may touch it when. Source: PTX ISA, "tensor memory" and "tcgen05 memory consistency model".
#pragma once
#include <cute/arch/tmem_allocator_sm100.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include "gemmsim/device/block.h"
#include "mx/tensor_places.h"

namespace gemmsim {

// Addresses of tensor memory: lane in the upper half, column in the lower one.
struct TensorMemory {
    static GEMMSIM_HD void copy_scales(uint32_t to, uint64_t from) {
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from));
    }
    static GEMMSIM_HD void commit(uint64_t* barrier) {
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(cute::cast_smem_ptr_to_uint(barrier)) : "memory");
    }
    static GEMMSIM_HD void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
    static GEMMSIM_HD void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
    // +0 in N columns of this warp's 32 lanes, before what comes after the next barrier.
    template <int N> static GEMMSIM_HD void clear(uint32_t at) {
        GEMMSIM_UNROLL for (int i = 0; i < N; i += 8)
            asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %1, %1, %1, %1, %1, %1, %1};" ::"r"(at + i), "r"(0) : "memory");
        asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
        before_sync();
    }
    // Eight columns of this warp's 32 lanes.
    static GEMMSIM_HD void read(uint32_t at, uint32_t (&to)[8]) {
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];\n\ttcgen05.wait::ld.sync.aligned;"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]), "=r"(to[4]), "=r"(to[5]), "=r"(to[6]), "=r"(to[7]) : "r"(at) : "memory");
    }

    // Allocates columns for a block (`place`: where shared memory keeps their address) and makes its barriers.
    static GEMMSIM_HD uint32_t open(int tid, int columns, uint32_t* place, uint64_t* barriers, int count) {
        if (tid < 32) {
            cute::TMEM::Allocator1Sm memory;
            memory.allocate(columns, place);
            memory.release_allocation_lock();
        }
        if (tid == 0) {
            for (int i = 0; i < count; ++i) cute::initialize_barrier(barriers[i], 1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        before_sync();
        __syncthreads();
        after_sync();
        return *(volatile uint32_t*)place;
    }
    static GEMMSIM_HD void close(int tid, int columns, uint32_t memory) {
        before_sync();
        __syncthreads();
        if (tid < 32) cute::TMEM::Allocator1Sm().free(memory, columns);
    }
};

}  // namespace gemmsim
