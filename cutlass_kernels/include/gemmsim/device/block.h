// What the threads of a block share. On the host (tests) the same names are provided by a shim that runs the threads of
// a block as fibers, one block after the other.
#pragma once
#include "gemmsim/types.h"

#if !defined(__CUDACC_RTC__)
extern "C" void gemmsim_host_sync();
extern "C" unsigned char* gemmsim_host_shared();
#endif

namespace gemmsim {

// Every thread of the block arrives before any goes on; what they wrote to shared memory is seen by all.
GEMMSIM_HD void block_sync() {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#elif !defined(__CUDACC_RTC__)
    gemmsim_host_sync();
#endif
}

// The block's dynamic shared memory (KernelSource.shared_bytes of it), aligned to 128 bytes. Not initialised.
GEMMSIM_HD unsigned char* shared_memory() {
#if defined(__CUDACC_RTC__)
    extern __shared__ __align__(128) unsigned char gemmsim_shared[];
    return gemmsim_shared;
#else
    return gemmsim_host_shared();
#endif
}

// The largest `x` of each warp's threads (`tid` counts those of the block), in the warp's own word.
GEMMSIM_HD void warp_maximum(uint32_t* words, uint32_t tid, uint32_t x) {
#if defined(__CUDA_ARCH__)
    x = __reduce_max_sync(0xFFFFFFFFu, x);
    if ((tid & 31) == 0) words[tid >> 5] = x;
#else  // fibers run in the order of their numbers
    uint32_t& word = words[tid >> 5];
    word = (tid & 31) == 0 || x > word ? x : word;
#endif
}

}  // namespace gemmsim
