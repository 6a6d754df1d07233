// The C ABI. Python mirrors these records field by field (gemmsim/backends/cpu/library.py); gemmsim_abi() guards that.
#pragma once
#include "tile.h"

#if defined(_WIN32)
#define GEMMSIM_API extern "C" __declspec(dllexport)
#else
#define GEMMSIM_API extern "C" __attribute__((visibility("default")))
#endif

namespace gemmsim {

enum { MAX_BATCH_DIMS = 16 };

// out[batch..., m, n] = spec(a[batch..., m, k], b[batch..., k, n]); strides in elements, a batch stride of 0 broadcasts.
struct GemmArgs {
    const void *a, *b;
    void* c;
    int32_t a_dtype, b_dtype, c_dtype, batch_dims;
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    int64_t batch_size[MAX_BATCH_DIMS], a_batch[MAX_BATCH_DIMS], b_batch[MAX_BATCH_DIMS], c_batch[MAX_BATCH_DIMS];
    Cast cast_a, cast_b, cast_mul, cast_add, cast_out;
    int32_t fused, arithmetic;
    uint64_t seed;
    int32_t threads, reserved;
};

// What ran: tiles per carrier, step and kind (the last kind is the scalar kernel), and what held for all of them.
struct Report {
    int64_t tiles[2][STEPS][KINDS + 1];
    int32_t proofs, has_directed, used_any, reserved;
};

// dst = cast(src), element by element in row-major order of `size`.
struct QuantizeArgs {
    const void* src;
    void* dst;
    int32_t src_dtype, dst_dtype, dims, site;
    int64_t size[MAX_BATCH_DIMS], src_stride[MAX_BATCH_DIMS], dst_stride[MAX_BATCH_DIMS];
    Cast cast;
    uint64_t seed;
    int32_t threads, reserved;
};

int run_gemm(const Isa& isa, const GemmArgs& g, Report* report);
int run_quantize(const Isa& isa, const QuantizeArgs& q);

}  // namespace gemmsim

GEMMSIM_API int gemmsim_abi(int64_t* sizes);                       // version; sizes of Cast, GemmArgs, Report, QuantizeArgs
GEMMSIM_API const char* gemmsim_isa();                             // the instruction set in use
GEMMSIM_API int gemmsim_set_isa(const char* name);                 // 0 ok, 1 unknown name, 2 not on this machine
GEMMSIM_API int gemmsim_gemm(const gemmsim::GemmArgs* g, gemmsim::Report* report);  // 0 ok, 1 out of memory
GEMMSIM_API int gemmsim_quantize(const gemmsim::QuantizeArgs* q);
GEMMSIM_API const char* gemmsim_build();                           // compiler and flags in words
