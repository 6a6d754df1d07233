// CUTLASS' collectives expect a host compiler. This header defines what NVRTC lacks. It is included before any header of CUTLASS.
#pragma once
#include <cuda_runtime_api.h>
#include <cuda/std/array>
#include <cuda/std/cassert>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>

// CUTLASS' device code uses names of std::. On a device, CCCL defines them in cuda::std.
namespace std {
using namespace cuda::std;
}

// A failed assertion is a function call, and a call anywhere in a kernel makes ptxas insert a wait after every wgmma. Its message:
// "wgmma.mma_async instructions are serialized due to wgmma pipeline crossing function boundary". NVRTC's assert ignores NDEBUG.
#undef assert
#define assert(...) ((void)0)

// The builders include nvcuda::wmma but do not use it, and its header is in a package of nvcc. cutlass/arch/wmma.h leaves it out for
// compilers older than CUDA 9. This compiler claims to be CUDA 8 while it reads that header, which is read only once.
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ 8
#include <cutlass/arch/wmma.h>
#undef __CUDACC_VER_MAJOR__
#define __CUDACC_VER_MAJOR__ (CUDART_VERSION / 1000)
#if defined(CUTLASS_ARCH_WMMA_ENABLED)
#error "another header has read cutlass/arch/wmma.h before this one"
#endif
