// Copies from global to shared memory that run while the thread does something else: cp.async of sm_80 and newer. On the host
// (tests) the shim executes them when the thread waits for them, and no sooner.
#pragma once
#include "gemmsim/types.h"

#if !defined(__CUDACC_RTC__)
extern "C" void gemmsim_host_copy(void* to, const void* from, int bytes);  // from null: zeros
extern "C" void gemmsim_host_commit();
extern "C" void gemmsim_host_wait(int groups);
#endif

namespace gemmsim {

// Copies BYTES bytes (4, 8 or 16, aligned) of global memory. If not `there`, it writes zeros and reads nothing.
template <int BYTES> GEMMSIM_HD void copy_async(void* shared, const void* global, bool there) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
#if defined(__CUDA_ARCH__)
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    const int size = there ? BYTES : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(BYTES), "r"(size) : "memory");
#elif !defined(__CUDACC_RTC__)
    gemmsim_host_copy(shared, there ? global : nullptr, BYTES);
#endif
}

// The thread's copies since the last call form a group.
GEMMSIM_HD void commit_async() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC_RTC__)
    gemmsim_host_commit();
#endif
}

// Waits until at most GROUPS of the thread's groups are incomplete.
template <int GROUPS> GEMMSIM_HD void wait_async() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#elif !defined(__CUDACC_RTC__)
    gemmsim_host_wait(GROUPS);
#endif
}

}  // namespace gemmsim
