// The C ABI. Python mirrors these records field by field (gemmsim/backends/cpu/records.py); gemmsim_abi() guards that.
#pragma once
#include "product/event_args.h"
#include "product/interruption.h"
#include "product/member.h"
#include "product/scales.h"

#if defined(_WIN32)
#define GEMMSIM_API extern "C" __declspec(dllexport)
#else
#define GEMMSIM_API extern "C" __attribute__((visibility("default")))
#endif

namespace gemmsim {

enum { MAX_BATCH_DIMS = 16 };

// What only some products have: an addend C, the indices of a palette's members, counts. All have the result's shape.
struct Extras {
    const void* addend;     // null: none
    const uint8_t* select;  // null: none
    // INTEGER, FIXED: increased by how often each element's register left its range; (batch..., m, n) contiguous. If given,
    // the result may be null: it is not stored
    int64_t* overflows;
    int64_t addend_row, addend_col, select_row, select_col;
    const int64_t* batch;   // two rows of batch_dims: strides of addend and of select
    int32_t addend_dtype, reserved;
    const Scales* scales;   // elements of block formats come without them; null: none
};

// out[batch..., m, n] = spec(a[batch..., m, k], b[batch..., k, n]); strides in elements, a batch stride of 0 broadcasts.
struct GemmArgs {
    const void *a, *b;
    void* c;
    int32_t a_dtype, b_dtype, c_dtype, batch_dims;
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    const int64_t* batch;  // four rows of batch_dims: sizes, strides of a, b, c
    const Extras* extras;  // null: none
    uint64_t seed;
    int32_t threads;
    uint32_t row0;  // of the first row among those that random bits are drawn for
    // from here on the spec's part, the same for every call
    int32_t arithmetic, member_count;  // member_count: of a palette; 0: `member` computes every element
    Cast cast_a, cast_b, cast_out;
    Member member;
    const Member* members;
};

// Index tables of operand A; all offsets in elements. Row m lies at m / inner * a_outer + rows[m % inner], term k at cols[k]
// from there; row m of the result at m / inner * c_outer + m % inner * c_row. a_row and a_col are not read. The operand's
// values are those of its format already: its cast tells what they can be and rounds nothing. Batches of the product lie
// side by side where random bits are drawn: column batch * n + j, row m.
struct Gather {
    const int64_t *rows, *cols;
    int64_t inner, a_outer, c_outer;
};

// Products looked up: operands are codes, and the product of codes x and y is values[x * columns + y]. The last row and the
// last column are those of a NaN that the operands' formats have no code for. GemmArgs' casts of the operands describe 1 and the
// values; its strides count codes.
struct Lookup {
    const double* values;
    int32_t rows, columns;
};

// What ran: which kernels computed at least one tile, and what the planner had proved for all of them.
struct Report {
    uint8_t used[2][STEPS][ALL_KINDS];  // carrier, step, kind
    uint8_t fp16;                     // registers of binary16 by the processor's own steps
    int32_t proofs, fractions;  // fractions: an operand of an INTEGER run is not a whole number

    void add(const Report& r) {
        for (int c = 0; c < 2; ++c)
            for (int s = 0; s < STEPS; ++s)
                for (int k = 0; k < ALL_KINDS; ++k) used[c][s][k] |= r.used[c][s][k];
        fp16 |= r.fp16;
        proofs &= r.proofs;
        fractions |= r.fractions;
    }
    // 4 bits of proofs, then up to seven kernels of 7 bits each (1 + their index)
    int64_t packed() const {
        if (fractions) return -2;
        int64_t code = proofs & 15;
        int at = 4;
        for (int c = 0; c < 2; ++c)
            for (int s = 0; s < STEPS; ++s)
                for (int k = 0; k < ALL_KINDS; ++k)
                    if (used[c][s][k] && at < 53) {
                        code |= (int64_t)(1 + (c * STEPS + s) * ALL_KINDS + k) << at;
                        at += 7;
                    }
        if (fp16 && at < 53) code |= (int64_t)(1 + 2 * STEPS * ALL_KINDS) << at;
        return code;
    }
};

// dst = cast(src), element by element in row-major order of `size`; random bits are those of elements `start` and on.
struct QuantizeArgs {
    const void* src;
    void* dst;
    int32_t src_dtype, dst_dtype, dims, site;
    int64_t size[MAX_BATCH_DIMS], src_stride[MAX_BATCH_DIMS], dst_stride[MAX_BATCH_DIMS];
    Cast cast;
    uint64_t seed, start;
    int32_t threads, reserved;
};

Report run_gemm(const Isa& isa, const GemmArgs& g, const Gather* gather = nullptr, const Lookup* lookup = nullptr,
                const EventArgs* events = nullptr);
int run_quantize(const Isa& isa, const QuantizeArgs& q);
const char* isa_of_kernels();  // Isa::name of the one in use

}  // namespace gemmsim

GEMMSIM_API int gemmsim_abi(int64_t* sizes);        // version; sizes of Cast, GemmArgs, QuantizeArgs
GEMMSIM_API const char* gemmsim_isa();              // the instruction set in use
GEMMSIM_API int gemmsim_set_isa(const char* name);  // 0 ok, 1 unknown name, 2 not on this machine
GEMMSIM_API int64_t gemmsim_gemm(const gemmsim::GemmArgs* g);  // Report::packed(), or as below
GEMMSIM_API int64_t gemmsim_gathered_gemm(const gemmsim::GemmArgs* g, const gemmsim::Gather* gather);  // no palettes
GEMMSIM_API int64_t gemmsim_lookup_gemm(const gemmsim::GemmArgs* g, const gemmsim::Lookup* lookup);  // codes of 16 bits; no palettes
GEMMSIM_API int64_t gemmsim_counted_gemm(const gemmsim::GemmArgs* g, const gemmsim::EventArgs* events);  // rounded registers; no palettes
// -1: out of memory, -2: not whole numbers, -3: no select, -4: a handler of signals raised what gemmsim_raised() has (type, value,
// traceback, owned by who asks); the result is written in part.
GEMMSIM_API void gemmsim_interpreter(const gemmsim::Interpreter* python);  // who handles signals; before the first product
GEMMSIM_API void gemmsim_raised(void** three);
GEMMSIM_API int gemmsim_quantize(const gemmsim::QuantizeArgs* q);
GEMMSIM_API const char* gemmsim_build();  // compiler and flags in words
