// What the threads of a block share. On the host (tests) a shim provides the same names. It runs the threads of a block as fibers,
// one block after the other.
#pragma once
#include "gemmsim/types.h"

#if !defined(__CUDACC_RTC__)
extern "C" void gemmsim_host_sync();
extern "C" unsigned char* gemmsim_host_shared();
#endif

namespace gemmsim {

// Every thread of the block arrives before any continues. All threads then see what they wrote to shared memory.
GEMMSIM_HD void block_sync() {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#elif !defined(__CUDACC_RTC__)
    gemmsim_host_sync();
#endif
}

// The block's dynamic shared memory (KernelSource.shared_bytes of it), aligned to 128 bytes. It is not initialised.
GEMMSIM_HD unsigned char* shared_memory() {
#if defined(__CUDACC_RTC__)
    extern __shared__ __align__(128) unsigned char gemmsim_shared[];
    return gemmsim_shared;
#else
    return gemmsim_host_shared();
#endif
}

// The same as an address of 32 bits, and the memory at such an address. Loops that count in these addresses need no other register.
GEMMSIM_HD uint32_t shared_base() {
#if defined(__CUDA_ARCH__)
    return (uint32_t)__cvta_generic_to_shared(shared_memory());
#else
    return 0;
#endif
}
GEMMSIM_HD const unsigned char* shared_at(uint32_t address) {
#if defined(__CUDA_ARCH__)
    return (const unsigned char*)__cvta_shared_to_generic(address);
#else
    return shared_memory() + address;
#endif
}

// The block's shared memory from the period of a swizzle on. It is computed as an offset, because a pointer made of a number could
// point to any memory.
GEMMSIM_HD uint8_t* aligned_shared() {
    uint8_t* const shared = shared_memory();
#if defined(__CUDA_ARCH__)
    return shared + (-(uint32_t)__cvta_generic_to_shared(shared) & 1023u);
#else
    return shared + (-(uint32_t)(uint64_t)shared & 1023u);
#endif
}

// The operation of a reduction over a warp.
enum class Reduce { MOST, LEAST, BITS };

// Reduces `x` over each warp's threads to the largest, the smallest or the union of bits, and stores the result in the warp's own
// word. `tid` counts the threads of the block.
template <Reduce HOW = Reduce::MOST> GEMMSIM_HD void warp_reduce(uint32_t* words, uint32_t tid, uint32_t x) {
#if defined(__CUDA_ARCH__)
    if constexpr (HOW == Reduce::MOST) x = __reduce_max_sync(0xFFFFFFFFu, x);
    else if constexpr (HOW == Reduce::LEAST) x = __reduce_min_sync(0xFFFFFFFFu, x);
    else x = __reduce_or_sync(0xFFFFFFFFu, x);
    if ((tid & 31) == 0) words[tid >> 5] = x;
#else  // fibers run in the order of their numbers
    uint32_t& word = words[tid >> 5];
    if ((tid & 31) == 0) word = x;
    else if constexpr (HOW == Reduce::MOST) word = x > word ? x : word;
    else if constexpr (HOW == Reduce::LEAST) word = x < word ? x : word;
    else word |= x;
#endif
}

}  // namespace gemmsim
