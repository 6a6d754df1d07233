// This file declares the C ABI of the CPU library. Python mirrors these records field by field
// (gemmsim/backends/cpu/ctypes_structs.py), and gemmsim_abi() checks their sizes.
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

// Arguments that only some products have: an addend C, palette indices, overflow counts and scales. The addend, the
// indices and the counts have the result's shape.
struct Extras {
    const void* addend;     // null: no addend
    const uint8_t* select;  // index of each element's palette member; null: no palette
    // INTEGER and FIXED: each count grows by how often that element's register left its range. The counts are
    // contiguous, (batch..., m, n). If they are given, the result may be null and is then not stored.
    int64_t* overflows;
    int64_t addend_row, addend_col, select_row, select_col;
    const int64_t* batch;   // two rows of batch_dims: strides of addend and of select
    int32_t addend_dtype, reserved;
    const Scales* scales;   // scales of block formats, whose elements are given without them; null: none
};

// out[batch..., m, n] = spec(a[batch..., m, k], b[batch..., k, n]). Strides count elements. A batch stride of 0
// broadcasts.
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
    // The random bits of the result's first row are those of this row.
    uint32_t row0;
    // The fields below describe the spec. They are the same for every call with it.
    int32_t arithmetic, member_count;  // member_count: size of the palette; 0: `member` computes every element
    Cast cast_a, cast_b, cast_out;
    Member member;
    const Member* members;
};

// Index tables of operand A for implicit im2col; all offsets count elements. Row m of A starts at
// m / inner * a_outer + rows[m % inner], and its term k lies cols[k] further. Row m of the result starts at
// m / inner * c_outer + m % inner * c_row. a_row and a_col are not read. The operand's values are already values of its
// format: its cast says what they can be and rounds nothing. For random bits the batches of the product are side by
// side: element (m, n) of a batch draws as row m and column batch * GemmArgs::n + n.
struct Gather {
    const int64_t *rows, *cols;
    int64_t inner, a_outer, c_outer;
};

// A product that looks its terms up in a table. Operands are codes; the product of codes x and y is
// values[x * columns + y]. The last row and the last column belong to NaN, for which the operands' formats have no
// code. In GemmArgs the operands' casts describe 1 and the table's values, and the strides count codes.
struct Lookup {
    const double* values;
    int32_t rows, columns;
};

// What computed a product: the kernels that computed at least one tile, and what the planner proved for all of them.
struct Report {
    static constexpr int MOST = 4, BITS = 14;  // kernels in a report, and bits of one of them when packed
    uint16_t ran[MOST];                        // from the smallest on
    int32_t count, more;                       // more: other kernels ran, too
    int32_t proofs, fractions;                 // fractions: an operand of an INTEGER segment is not a whole number

    static Report empty() {
        Report r = {};
        r.proofs = ~0;
        return r;
    }
    // Which of a kernel's steps and roundings matter is in the names that Python prints (kernel_report.py).
    void add(Kernel kernel, int carrier, int step, Rounding kind) {
        add_code((uint16_t)((((1 + (int)kernel) * 2 + carrier) * STEPS + step) * CODES_OF_ROUNDING + (int)kind));
    }
    void add(const Report& r) {
        for (int i = 0; i < r.count; ++i) add_code(r.ran[i]);
        more |= r.more;
        proofs &= r.proofs;
        fractions |= r.fractions;
    }
    // Packs the report: 4 bits of proofs, then the kernels, then whether there are more.
    int64_t packed() const {
        if (fractions) return -2;
        int64_t code = proofs & 15;
        for (int i = 0; i < count; ++i) code |= (int64_t)ran[i] << (4 + BITS * i);
        return code | (int64_t)(more != 0) << (4 + BITS * MOST);
    }

private:
    static constexpr int CODES_OF_ROUNDING = 16;
    static_assert((1 + KERNELS) * 2 * STEPS * CODES_OF_ROUNDING <= 1 << BITS, "a kernel fits its bits");
    void add_code(uint16_t code) {
        int i = 0;
        while (i < count && ran[i] < code) ++i;
        if (i < count && ran[i] == code) return;
        if (count == MOST) {
            more = 1;
            return;
        }
        for (int j = count++; j > i; --j) ran[j] = ran[j - 1];
        ran[i] = code;
    }
};

// dst = cast(src), element by element in row-major order of `size`. Element i draws random bits as element `start` + i.
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
const char* isa_of_kernels();  // Isa::name of the instruction set in use

}  // namespace gemmsim

GEMMSIM_API int gemmsim_abi(int64_t* sizes);        // version; sizes of Cast, GemmArgs, QuantizeArgs
GEMMSIM_API const char* gemmsim_isa();              // the instruction set in use
GEMMSIM_API int gemmsim_set_isa(const char* name);  // 0 ok, 1 unknown name, 2 not on this machine
GEMMSIM_API int64_t gemmsim_gemm(const gemmsim::GemmArgs* g);  // Report::packed(), or an error below
GEMMSIM_API int64_t gemmsim_gathered_gemm(const gemmsim::GemmArgs* g, const gemmsim::Gather* gather);  // no palettes
GEMMSIM_API int64_t gemmsim_lookup_gemm(const gemmsim::GemmArgs* g, const gemmsim::Lookup* lookup);  // codes of 16 bits; no palettes
// This entry point counts events. It takes rounded registers only, and no palettes.
GEMMSIM_API int64_t gemmsim_counted_gemm(const gemmsim::GemmArgs* g, const gemmsim::EventArgs* events);
// Errors of the four products above: -1 out of memory, -2 operands are not whole numbers, -3 the palette lacks `select`
// or the entry point has no palettes, -4 a signal handler raised an exception. After -4 gemmsim_raised() returns that
// exception (type, value, traceback) and its ownership; the result is written in part.
GEMMSIM_API void gemmsim_interpreter(const gemmsim::Interpreter* python);  // sets who handles signals; called before the first product
GEMMSIM_API void gemmsim_raised(void** three);
GEMMSIM_API int gemmsim_quantize(const gemmsim::QuantizeArgs* q);
// A column of the list of kernels: name, file, when it is possible, when it pays, name of the fallback, and what reports add to the name.
// Null: there is no such kernel or column.
GEMMSIM_API const char* gemmsim_kernel_rule(int32_t kernel, int32_t column);
GEMMSIM_API const char* gemmsim_build();  // compiler and its version, as text
