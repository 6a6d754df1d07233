// Matrix products and casts over whole tensors: batches, strides, packing, threads. No special instructions here.
#include <new>
#include <stdlib.h>
#if defined(_OPENMP)
#include <omp.h>
#endif
#include "api.h"
#include "compose.h"
#include "float_state.h"
#include "pack.h"
#include "scalar.h"

namespace gemmsim {

struct Buffer {  // 64-byte aligned, uninitialised; small ones on the stack; throws std::bad_alloc
    alignas(64) char small[8192];
    char* p;
    explicit Buffer(size_t n) : p(n <= sizeof small ? small : (char*)aligned_alloc(64, (n + 127) / 64 * 64)) {
        if (!p) throw std::bad_alloc();
    }
    ~Buffer() {
        if (p != small) free(p);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
};

static int thread_index(int threads) {
#if defined(_OPENMP)
    return threads > 1 ? omp_get_thread_num() : 0;
#else
    return 0 * threads;
#endif
}

static const Stats EMPTY = {0.0, 0.0, 32767, 0, 0};

template <class T> struct Product {
    const Isa& isa;
    const GemmArgs& g;
    const Request& r;
    const int carrier, kind_carrier, nr;
    const int64_t panels, blocks;
    int64_t block_rows;
    std::vector<int64_t> kmap, position;  // interleaved: k of each place; permuted: place of each term; else empty
    const bool planned;  // the choice of kernel depends on the data

    Product(const Isa& i, const GemmArgs& args, const Request& req, int c)
        : isa(i), g(args), r(req), carrier(sizeof(T) == 4 ? 0 : 1), kind_carrier(c), nr(i.nr[carrier]), panels((args.n + nr - 1) / nr),
          blocks((args.m + MR - 1) / MR), planned(req.method >= INTEGER || (c != 2 && (!native(req, carrier) || req.wrapper_count))) {
        // A block of rows is packed once and used against all of B: as tall as half a megabyte, but enough blocks for the threads
        const int64_t fit = (1 << 19) / ((g.k + 1) * MR * (int64_t)sizeof(T));
        const int64_t share = (blocks + 4 * g.threads - 1) / (4 * g.threads);
        block_rows = fit < 1 ? 1 : fit < share ? fit : share;
        for (int w = 0; w < r.wrapper_count; ++w)
            if (r.wrappers[w].order == INTERLEAVED || r.wrappers[w].order == SHUFFLED) {
                order_terms();
                break;
            }
    }

    Positions at() const { return position.empty() ? nullptr : position.data(); }

    void order_terms() {
        std::vector<int64_t> k_of((size_t)g.k);
        for (int64_t k = 0; k < g.k; ++k) k_of[(size_t)k] = k;
        permute_terms(r, 0, 0, g.k, k_of.data());
        position.resize((size_t)g.k);
        const bool shuffled = r.wrappers[0].order == SHUFFLED;
        for (int64_t at = 0; at < g.k; ++at) {
            const int64_t k = k_of[(size_t)at];
            position[(size_t)(shuffled ? g.permutation[k] : k)] = at;
        }
        for (int w = 0; w < r.wrapper_count; ++w)
            if (r.wrappers[w].order == INTERLEAVED) kmap = k_of;
    }

    static int64_t offset(const int64_t* strides, const int64_t* sizes, int dims, int64_t batch) {
        int64_t at = 0;
        for (int d = dims - 1; d >= 0; --d) {
            at += strides[d] * (batch % sizes[d]);
            batch /= sizes[d];
        }
        return at;
    }
    Matrix operand_a(int64_t batch) const {
        return Matrix{(const char*)g.a + offset(g.batch + g.batch_dims, g.batch, g.batch_dims, batch) * dtype_size(g.a_dtype), g.a_dtype, g.m, g.k, g.a_row, g.a_col};
    }
    Matrix operand_b(int64_t batch) const {
        return Matrix{(const char*)g.b + offset(g.batch + 2 * g.batch_dims, g.batch, g.batch_dims, batch) * dtype_size(g.b_dtype), g.b_dtype, g.k, g.n, g.b_row, g.b_col};
    }

    void save_tile(T* c, int64_t batch, int64_t row0, int rows, int64_t col0, int cols) const {
        char* base = (char*)g.c + offset(g.batch + 3 * g.batch_dims, g.batch, g.batch_dims, batch) * dtype_size(g.c_dtype);
        for (int i = 0; i < rows; ++i) {
            T* x = c + i * nr;
            if (r.out.flags & PRESENT) isa.round(carrier, x, cols, r.out, 0, 0, 0);
            isa.save(carrier, x, cols, base + ((row0 + i) * g.c_row + col0 * g.c_col) * dtype_size(g.c_dtype), g.c_dtype, g.c_col);
        }
    }

    // Rows of `count` packed panels of A from panel `first`, against panels [p0, p1) of B.
    void block(int64_t batch, int64_t first, int64_t count, int64_t p0, int64_t p1, const T* packed_b, const Stats& sb, T* packed_a, Report* report) const {
        const Matrix a = operand_a(batch);
        Stats sa = EMPTY;
        for (int64_t q = 0; q < count; ++q) pack_a(isa, carrier, a, (first + q) * MR, r.a, at(), packed_a + q * g.k * MR, planned ? &sa : nullptr);
        if (r.method == INTEGER && (sa.non_finite || sb.non_finite || sa.lsb < 0 || sb.lsb < 0)) report->fractions = 1;
        Choice choice = r.method == HARDWARE ? choose_hardware(r, sa, sb) : r.method == INTEGER || r.method == FIXED ? choose_integers(r, sa, sb, carrier == 0) : r.method ? choose_compensated(r, sa, sb, kind_carrier, isa.has_directed) : choose(r, sa, sb, kind_carrier, isa.has_directed);
        if (!kmap.empty() && (r.add.mode >= SR || (!r.fused && r.mul.mode >= SR))) choice.kind = SCALAR;  // draws by original index
        if (kmap.empty() || choice.kind != SCALAR) choice.runs = choose_runs(r, choice, sa, sb);
        Meeting meetings[MAX_WRAPPERS];
        for (int w = 0; w < r.wrapper_count; ++w) meetings[w] = choose_meeting(r, r.wrappers[w].cast, kind_carrier, sa, sb);
        alignas(64) T c[MR * 64];
        for (int64_t p = p0; p < p1; ++p)
            for (int64_t q = 0; q < count; ++q) {
                const int64_t row0 = (first + q) * MR, col0 = p * nr;
                const int rows = (int)(g.m - row0 < MR ? g.m - row0 : MR), cols = (int)(g.n - col0 < nr ? g.n - col0 : nr);
                const Tile t = {packed_a + q * g.k * MR, packed_b + p * g.k * nr, c, g.k, rows, cols, &r.mul, &r.add, g.seed, (uint64_t)(batch * g.m + row0), (uint32_t)col0, 0, nullptr};
                if (r.wrapper_count || r.method) {
                    int64_t* const counts = g.overflows ? g.overflows + (batch * g.m + row0) * g.n + col0 : nullptr;
                    const Compose<T> compose = {isa, r, choice, meetings, t, nr, carrier, kmap.empty() ? nullptr : kmap.data(), sa.non_finite || sb.non_finite, counts, g.n};
                    compose.run(0, 0, g.k, c);
                    if (g.c) save_tile(c, batch, row0, rows, col0, cols);
                    continue;
                }
                memset(c, 0, sizeof(T) * MR * nr);
                const bool won = choice.runs.kind >= 0 && isa.runs(choice.carrier, choice.step, t, Lengths{}, choice.runs);
                if (choice.runs.kind >= 0 && !won) memset(c, 0, sizeof(T) * MR * nr);
                if (won) {}
                else if (choice.kind == SCALAR) scalar_tile<T>(t, r, nr);
                else isa.tile[choice.carrier][choice.step][choice.kind](t);
                fill_up<T>(r, g.k, c, MR * nr);
                save_tile(c, batch, row0, rows, col0, cols);
            }
        report->used[choice.carrier][choice.step][choice.kind] = 1;
        report->proofs &= choice.proofs;
    }

    size_t a_bytes() const { return ((size_t)(block_rows * g.k * MR) * sizeof(T) + 63) / 64 * 64; }

    static constexpr int64_t GROUP = 8;  // panels of B packed together
    void pack_group(const Matrix& b, int64_t first, int64_t count, T* packed_b, Stats* stats) const {
        for (int64_t p = first; p < first + count; p += GROUP) {
            const int64_t n = first + count - p < GROUP ? first + count - p : GROUP;
            pack_b(isa, carrier, b, p * nr, n, nr, r.b, at(), packed_b + p * g.k * nr, planned ? stats : nullptr);
        }
    }

    struct Split {  // the work of one batch: blocks of rows times groups of columns
        int64_t row_tasks, col_tasks;
    };
    Split split(int threads) const {
        const int64_t rows = (blocks + block_rows - 1) / block_rows;
        const int64_t cols = rows >= threads ? 1 : (2 * threads + rows - 1) / rows;
        return Split{rows, cols < panels ? cols : panels};
    }
    void task(int64_t batch, const Split& s, int64_t index, const T* packed_b, const Stats& sb, T* packed_a, Report* report) const {
        const int64_t rt = index / s.col_tasks, ct = index % s.col_tasks;
        const int64_t first = rt * block_rows, count = blocks - first < block_rows ? blocks - first : block_rows;
        block(batch, first, count, panels * ct / s.col_tasks, panels * (ct + 1) / s.col_tasks, packed_b, sb, packed_a, report);
    }

    void one_batch_alone(int64_t batch, T* packed_b, T* packed_a, bool pack, Stats* sb, Report* report) const {
        const Matrix b = operand_b(batch);
        if (pack) {
            *sb = EMPTY;
            pack_group(b, 0, panels, packed_b, sb);
        }
        const Split s = split(1);
        for (int64_t i = 0; i < s.row_tasks * s.col_tasks; ++i) task(batch, s, i, packed_b, *sb, packed_a, report);
    }

    // `packed_a` has a_bytes() for each thread.
    void one_batch(int64_t batch, int threads, T* packed_b, char* packed_a, bool pack, Stats* sb, Report* report) const {
        const Matrix b = operand_b(batch);
        const Split s = split(threads);
        if (pack) *sb = EMPTY;
#pragma omp parallel num_threads(threads)
        {
            const FloatState state;
            Stats local = EMPTY;
            Report mine = {};
            mine.proofs = ~0;
            if (pack) {
#pragma omp for schedule(static)
                for (int64_t p = 0; p < panels; p += GROUP) pack_group(b, p, panels - p < GROUP ? panels - p : GROUP, packed_b, &local);
#pragma omp critical(gemmsim_stats)
                merge(sb, local);
#pragma omp barrier
            }
            T* my_a = (T*)(packed_a + a_bytes() * (size_t)thread_index(threads));
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < s.row_tasks * s.col_tasks; ++i) task(batch, s, i, packed_b, *sb, my_a, &mine);
#pragma omp critical(gemmsim_report)
            report->add(mine);
        }
    }

    void run(Report* report) const {
        int64_t batches = 1;
        bool shared_b = true;
        for (int d = 0; d < g.batch_dims; ++d) {
            batches *= g.batch[d];
            if (g.batch[2 * g.batch_dims + d] != 0 && g.batch[d] > 1) shared_b = false;
        }
        const double work = (double)g.m * g.n * (g.k + 16);
        const size_t panel_bytes = (size_t)(panels * g.k * nr) * sizeof(T);
        const int threads = work * batches < 65536 ? 1 : g.threads;
        const Buffer packed_a(a_bytes() * (size_t)threads);
        if (threads > 1 && batches >= 2 * threads && work < 4e6) {  // many small products: a batch per thread
            const size_t stride = (panel_bytes + 63) / 64 * 64;
            const Buffer all_b(stride * (size_t)threads);
#pragma omp parallel num_threads(threads)
            {
                const FloatState state;
                const size_t me = (size_t)thread_index(threads);
                T* packed_b = (T*)(all_b.p + stride * me);
                Stats sb;
                Report mine = {};
                mine.proofs = ~0;
                bool first = true;
#pragma omp for schedule(static)
                for (int64_t i = 0; i < batches; ++i) {
                    one_batch_alone(i, packed_b, (T*)(packed_a.p + a_bytes() * me), first || !shared_b, &sb, &mine);
                    first = false;
                }
#pragma omp critical(gemmsim_report_batches)
                report->add(mine);
            }
            return;
        }
        const Buffer packed_b(panel_bytes);
        Stats sb;
        if (threads == 1) {
            const FloatState state;
            for (int64_t i = 0; i < batches; ++i) one_batch_alone(i, (T*)packed_b.p, (T*)packed_a.p, i == 0 || !shared_b, &sb, report);
            return;
        }
        for (int64_t i = 0; i < batches; ++i) one_batch(i, threads, (T*)packed_b.p, packed_a.p, i == 0 || !shared_b, &sb, report);
    }
};

Report run_gemm(const Isa& isa, const GemmArgs& g) {
    Request r;
    r.a = g.cast_a;
    r.b = g.cast_b;
    r.mul = g.cast_mul;
    r.add = g.cast_add;
    r.out = g.cast_out;
    r.fused = g.fused;
    r.arithmetic = g.arithmetic;
    r.dtype_a = g.a_dtype;
    r.dtype_b = g.b_dtype;
    r.k = g.k;
    r.wrapper_count = g.wrapper_count;
    r.wrappers = g.wrappers;
    r.method = g.method;
    r.integer = g.integer;
    r.hardware = g.hardware;
    Report report = {};
    report.proofs = ~0;
    const int carrier = choose_carrier(r, isa.has_directed);
    if (g.m == 0 || g.n == 0) return report;
    if (carrier == 0 || (carrier == 2 && g.arithmetic == FP32)) Product<float>(isa, g, r, carrier).run(&report);
    else Product<double>(isa, g, r, carrier).run(&report);
    return report;
}

}  // namespace gemmsim
