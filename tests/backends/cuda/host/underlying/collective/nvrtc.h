// In the place of cutlass_kernels/collective/nvrtc.h where g++ reads CUTLASS: its host code, as a host compiler of CUDA 13 sees it.
#pragma once
#include <cuda_runtime.h>
// A tensor map begins at a multiple of 64 bytes where NVRTC reads CUTLASS, as in cuda.h before CUDA 13.
#define alignas(bytes) alignas((bytes) > 64 ? 64 : (bytes))
#include <cuda.h>
#undef alignas

// Device functions that nothing calls here name these.
inline void __syncthreads() {}
inline void __syncwarp(unsigned = 0) {}
template <class T> T __shfl_sync(unsigned, T x, int, int = 32) { return x; }

#define CUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL 1
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ 8  // without nvcuda::wmma, as in the header that this one stands for
#include <cutlass/arch/wmma.h>
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
