// Exchanges of values between neighbouring threads of a warp. On the host (tests) threads are fibers, which synchronise at a
// barrier.
#pragma once
#include "gemmsim/device/block.h"

namespace gemmsim {

// The largest `x` of LANES neighbouring threads, a power of two up to 32. All threads of the block must call this together.
template <int LANES> GEMMSIM_HD uint32_t lanes_max(uint32_t tid, uint32_t x) {
    static_assert(LANES >= 1 && LANES <= 32 && (LANES & (LANES - 1)) == 0);
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, x, step);
        x = other > x ? other : x;
    }
#elif !defined(__CUDACC_RTC__)
    if (LANES > 1) {
        static uint32_t held[1024];
        held[tid] = x;
        gemmsim_host_sync();
        const uint32_t first = tid / LANES * LANES;
        for (uint32_t i = first; i < first + LANES; ++i) x = held[i] > x ? held[i] : x;
        gemmsim_host_sync();  // before any thread writes the next ones
    }
#endif
    return x;
}

}  // namespace gemmsim
