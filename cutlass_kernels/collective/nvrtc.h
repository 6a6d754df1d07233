// What CUTLASS' collectives expect of a host compiler and NVRTC does not bring. Included before any header of CUTLASS.
#pragma once
#include <cuda_runtime_api.h>
#include <cuda/std/array>
#include <cuda/std/cassert>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>

// Device code of CUTLASS names std:: where it means what CCCL has for devices.
namespace std {
using namespace cuda::std;
}

// A failed assertion is a call, and a call anywhere in a kernel makes ptxas wait after every wgmma ("wgmma.mma_async instructions
// are serialized due to wgmma pipeline crossing function boundary"). NVRTC's assert does not look at NDEBUG.
#undef assert
#define assert(...) ((void)0)

// The builders include nvcuda::wmma, which they do not use and whose header is in a package of nvcc. It is left out for
// compilers of before CUDA 9, for which this one passes while the header is read; it is read once.
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ 8
#include <cutlass/arch/wmma.h>
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ (CUDART_VERSION / 1000)
#if defined(CUTLASS_ARCH_WMMA_ENABLED)
#error "another header has read cutlass/arch/wmma.h before this one"
#endif
