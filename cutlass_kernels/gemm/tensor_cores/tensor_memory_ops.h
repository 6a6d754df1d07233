// The instructions of sm_100a for tensor memory, in PTX. A test has a header of this name that computes them on the host.
#pragma once
#include <cute/arch/tmem_allocator_sm100.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include "gemmsim/device/block.h"

namespace gemmsim {

// An address of tensor memory has the lane in its upper half and the column in its lower half.
struct TensorMemoryOps {
    // Copies a tile of scales, 32 rows of 16 bytes, to four columns of each quarter of the lanes.
    static GEMMSIM_HD void copy_scales(uint32_t to, uint64_t from) {
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from));
    }
    static GEMMSIM_HD void commit(uint64_t* barrier) {
        asm volatile(
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(cute::cast_smem_ptr_to_uint(barrier))
            : "memory");
    }
    static GEMMSIM_HD void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
    static GEMMSIM_HD void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
    static GEMMSIM_HD void warp_sync() { __syncwarp(); }
    static GEMMSIM_HD void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    // Stores zeros in eight columns of this warp's 32 lanes.
    static GEMMSIM_HD void zero(uint32_t at) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %1, %1, %1, %1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    static GEMMSIM_HD void stored() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
    static GEMMSIM_HD void read(uint32_t at, uint32_t (&to)[8]) {
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];\n\ttcgen05.wait::ld.sync.aligned;"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]), "=r"(to[4]), "=r"(to[5]), "=r"(to[6]), "=r"(to[7])
                     : "r"(at)
                     : "memory");
    }
};

}  // namespace gemmsim
