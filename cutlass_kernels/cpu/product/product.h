// One product over whole tensors: batches, strides, packing and threads. driver.cpp makes one for every product, with T the carrier.
// Special instructions are in the kernels of an Isa; only prefetch_to_write() has one here.
#pragma once
#include <atomic>
#include <memory>
#include <stdlib.h>
#include <vector>
#if defined(_OPENMP)
#include <omp.h>
#endif
#include "api.h"
#include "product/scratch.h"
#include "float_state.h"
#include "product/exponent_cache.h"
#include "product/lsb_cache.h"
#include "product/operands.h"
#include "product/window.h"

namespace gemmsim {

inline int thread_index(int threads) {
#if defined(_OPENMP)
    return threads > 1 ? omp_get_thread_num() : 0;
#else
    return 0 * threads;
#endif
}

constexpr int MAX_COLUMNS = 32;  // the most columns of a tile of floats

// Prefetches a cache line that will be written. Without a processor's name, x86 compilers emit the instruction for lines that will be
// read. The store would then wait for the line again. Processors without this instruction do nothing.
inline void prefetch_to_write(const char* p) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*p));
#else
    __builtin_prefetch(p, 1, 2);
#endif
}

template <class T> struct Product : Operands {
    const Isa& isa;
    const int carrier, kind_carrier, nr;
    const int64_t panels, blocks;
    int64_t block_rows;
    const bool planned;   // the choice of kernel depends on the data
    const bool streamed;  // tiles' panels have some of the terms at a time (product/streamed.h)
    const TermOrder order;
    const Members* const members;   // members of a palette, and `r` is one of them; else null
    const Table<T>* const table;    // table of products, if operands are codes; else null
    const EventArgs* const events;  // counts of events; null: not requested
    const LowestBits lowest;
    const ExponentFields fields;
    mutable std::atomic<bool> several_tiles_pay{true};  // false once a block found other kernels faster

    Product(const Isa& i, const GemmArgs& args, const Request& req, int c, const Members* palette = nullptr, const Gather* tables = nullptr,
            const Table<T>* products = nullptr, const EventArgs* counted = nullptr)
        : Operands{args, req, tables, products != nullptr}, isa(i), carrier(sizeof(T) == 4 ? 0 : 1), kind_carrier(c), nr(i.nr[carrier]),
          panels((args.n + nr - 1) / nr), blocks((args.m + MR - 1) / MR),
          planned(palette || req.method >= LONG || (c != 2 && !all_native(req, carrier))), streamed(streams(products)),
          order(palette ? TermOrder() : TermOrder(req, args.k, !streamed)), members(palette), table(products), events(counted),
          lowest(isa, req, args.m, carrier == 0 && c == 0 && planned && !palette && !products),
          fields(isa, req, args.m, carrier == 0 && !palette && !products) {
        // A block of rows is packed once and used with all of B. It has up to half a megabyte, but leaves enough blocks for the threads.
        const int64_t fit = BLOCK_BYTES / ((g.k + 1) * MR * (int64_t)sizeof(T));
        const int64_t share = (blocks + 4 * g.threads - 1) / (4 * g.threads);
        block_rows = fit < 1 ? 1 : fit < share ? fit : share;
    }

    // Whether panels of all terms would be large, and much larger than the operands. This happens when tiles have few of their rows and
    // columns in use.
    bool streams(const void* codes) const {
#ifdef GEMMSIM_STREAMS
        return GEMMSIM_STREAMS;
#endif
        const double of_a = codes ? sizeof(Code) : dtype_size(g.a_dtype), of_b = codes ? sizeof(Code) : dtype_size(g.b_dtype);
        const double packed = (double)(MR + panels * nr) * (double)sizeof(T), operands = (double)g.m * of_a + (double)g.n * of_b;
        if (blocks == 1 && !planned && !codes && in_order(r) && packed * (double)g.k >= LEAST_BYTES_USED_ONCE) return true;
        return packed * (double)g.k >= MOST_PANEL_BYTES && packed > PANELS_PER_OPERANDS * operands;
    }

    // Whether the register and all partial sums are the carrier's own. Then one kernel computes all data.
    static bool all_native(const Request& r, int carrier) {
        bool all = native(r, carrier);
        for (int w = 0; w < r.wrapper_count; ++w) all = all && (r.wrappers[w].order == SHUFFLED || is_native(r.wrappers[w].cast, carrier));
        return all;
    }

    Positions at() const { return order.at(); }

    // Epilogue of a tile: rounds `c` to the output format and saves it into the batch's result at `base`.
    // `places`: places of a palette's elements, of which those of the other carrier are not saved; null: all elements are saved.
    // `pitch`: distance of rows in c; 0: nr.
    void save_tile(T* c, char* base, int64_t row0, int rows, int64_t col0, int cols, const uint8_t* places, int64_t pitch = 0) const {
        const int64_t row_pitch = pitch ? pitch : nr;
        if (g.c_dtype == (sizeof(T) == 4 ? F32 : F64) && g.c_col == 1 && !places && !gather && !(r.out.flags & PRESENT))
            return isa.save_rows(carrier, c, row_pitch, rows, cols, (T*)base + row0 * g.c_row + col0, g.c_row);
        const bool widens = carrier == 0 && (r.out.flags & PRESENT) && !ends_are_floats(r.out);
        double wide[MAX_COLUMNS];
        for (int i = 0; i < rows; ++i) {
            T* x = c + i * row_pitch;
            if (widens)
                for (int j = 0; j < cols; ++j) wide[j] = (double)x[j];
            if (r.out.flags & PRESENT) isa.round(widens ? 1 : carrier, widens ? (void*)wide : x, cols, r.out, 0, 0, 0);
            char* const row = base + (result_row(row0 + i) + col0 * g.c_col) * dtype_size(g.c_dtype);
            for (int j = 0, end; j < cols; j = end) {
                const bool here = !places || places[i * nr + j] != NOT_HERE;
                for (end = places ? j + 1 : cols; end < cols && (places[i * nr + end] != NOT_HERE) == here;) ++end;
                if (here)
                    isa.save(widens ? 1 : carrier, widens ? (void*)(wide + j) : x + j, end - j, row + j * g.c_col * dtype_size(g.c_dtype),
                             g.c_dtype, g.c_col);
            }
        }
    }

    // Packs `count` panels of A from panel `first` on, and computes their rows with panels [p0, p1) of B.
    void block(int64_t batch, int64_t first, int64_t count, int64_t p0, int64_t p1, const T* packed_b, const Stats& sb, T* packed_a,
               Report* report) const {
        if (table) return table_block(batch, first, count, p0, p1, (const Code*)packed_b, sb, report);
        const Matrix a = operand_a(batch);
        Stats sa = EMPTY_STATS;
        for (int64_t q = 0; q < count; ++q) {
            T* const panel = packed_a + q * g.k * MR;
            PanelStats facts(planned ? &sa : nullptr);
            if (gather) pack_gathered(isa, carrier, a, *gather, (first + q) * MR, at(), panel, facts);
            else pack_a(isa, carrier, a, (first + q) * MR, r.a, at(), panel, facts);
            facts.end();
            if (fields.kept) fields.of_panel_a(panel, fields_of_a(packed_a, q));
            ThreadOfCall::poll(g.k / 8);  // packing a term takes less time than computing with it
        }
        if (integers() && (sa.non_finite || sb.non_finite || sa.lsb < 0 || sb.lsb < 0)) report->fractions = 1;
        if (members) return palette_block(batch, first, count, p0, p1, packed_b, sa, sb, packed_a, report);
        const Addend addend = addend_of(batch);
        int64_t* const overflows = g.extras ? g.extras->overflows : nullptr;
        const int64_t row0 = first * MR, col0 = p0 * nr, row1 = (first + count) * MR, col1 = p1 * nr;
        Stats sc = EMPTY_STATS;
        if (r.init && planned)
            sc = addend.stats<T>(isa, row0, (row1 < g.m ? row1 : g.m) - row0, col0, (col1 < g.n ? col1 : g.n) - col0, nr);
        Runner<T> runner(isa, r, kind_carrier, nr, order.map(), sa, sb, sc, isa.directed);
        const std::unique_ptr<EventCounter<T>> counter(events ? new EventCounter<T>{isa, r, *events, nr} : nullptr);
        if (counter) counter->check(sa, sb, planned);
        runner.set_counter(counter.get());
        runner.block.scales = g.extras ? g.extras->scales : nullptr;
        runner.block.counts_overflows = overflows != nullptr;
        runner.block.has_panels = runner.block.may_scale = true;
        runner.block.several_tiles =
            several_tiles_pay && !r.hardware.first && OF_ROWS * ((row1 < g.m ? row1 : g.m) - row0) >= ROWS_IN_USE * (row1 - row0);
        runner.choose_kernels();
        if (runner.asks_for_midpoints()) {
            runner.block.midpoints = few_midpoints(packed_a, count, low_of_b(packed_b, p0)) ? Block::FEW : Block::MANY;
            runner.choose_kernels();
        }
        change_panels(runner, packed_a, count * g.k * MR);
        if (runner.takes_several_tiles()) {
            p0 = blocks_at_once(batch, first, count, p0, p1, packed_a, packed_b, runner, report);
            if (p0 == p1) return;
            leave_several_tiles(runner, packed_a, count * g.k * MR);
        }
        alignas(64) T c[MR * 64], start[MR * 64];
        char* const result = result_of(batch);
        TileScales scales;  // assigned only if there are scales, because a copy takes as long as a tile of few terms
        for (int64_t p = p0; p < p1; ++p)
            for (int64_t q = 0; q < count; ++q) {
                const int64_t row = (first + q) * MR, col = p * nr;
                Tile t = tile_at(batch, row, col, packed_a + q * g.k * MR, packed_b + p * g.k * nr, c);
                if (r.init) addend.load(isa, row, t.rows, col, t.cols, nr, start);
                if (g.extras && g.extras->scales) scales = scales_of(batch, row, col);
                if (runner.filters_midpoints()) lowest.give(t, low_of_a(packed_a, q), low_of_b(packed_b, p));
                if (fields.kept) t.field_a = fields_of_a(packed_a, q), t.field_b = fields_of_b(packed_b, p);
                if (!runner.run(t, start, overflows ? overflows + (batch * g.m + row) * g.n + col : nullptr, g.n, scales)) {
                    runner.add_to(report);
                    leave_several_tiles(runner, packed_a, count * g.k * MR);
                    runner.run(t, start);
                }
                if (counter) counter->add_to(events->counts, batches() * g.m * g.n, (batch * g.m + row) * g.n + col, g.n, t.rows, t.cols);
                if (g.c) save_tile(c, result, row, t.rows, col, t.cols, nullptr);
            }
        runner.add_to(report);
    }
    void leave_several_tiles(Runner<T>& runner, T* packed_a, int64_t n) const {
        several_tiles_pay = false;
        scale_panels(packed_a, n, runner.leave_several_tiles());
    }

    uint8_t* low_of_a(const T* packed_a, int64_t panel) const { return lowest.behind(packed_a, block_rows, MR) + panel * g.k; }
    uint8_t* low_of_b(const T* packed_b, int64_t panel) const { return lowest.behind(packed_b, panels, nr) + panel * g.k; }
    int32_t* fields_of_a(const T* packed_a, int64_t panel) const { return fields.behind_a(packed_a, block_rows) + panel * g.k * MR; }
    int16_t* fields_of_b(const T* packed_b, int64_t panel) const { return fields.behind_b(packed_b, panels, nr) + panel * g.k * nr; }
    // Writes the lowest bits of panels of A; call this before the panels are scaled.
    // Returns whether few terms of the first of these panels and a panel of B may lead to midpoints.
    bool few_midpoints(const T* packed_a, int64_t count, const uint8_t* low_b) const {
        if (!lowest.kept) return false;
        lowest.of_panels(packed_a, count, MR, low_of_a(packed_a, 0));
        return lowest.few_midpoints(low_of_a(packed_a, 0), low_b);
    }

    // Converts packed panels of A to what the runner's kernels read: scaled, or binary16.
    void change_panels(const Runner<T>& runner, T* packed_a, int64_t n) const {
        scale_panels(packed_a, n, runner.scaled_by);
        if (runner.kernel == Kernel::BINARY16) isa.fp16->pack((float*)packed_a, n);
    }
    void scale_panels(T* x, int64_t n, int by) const {
        if (by) isa.times((const float*)x, (float*)x, n, (float)ldexp(1.0, by));  // only panels of floats are scaled
    }

    // Computes block()'s tiles, several in one call (MultiTile). Returns the first panel of B whose tiles it did not all compute.
    int64_t blocks_at_once(int64_t batch, int64_t first, int64_t count, int64_t p0, int64_t p1, const T* packed_a, const T* packed_b,
                           Runner<T>& runner, Report* report) const {
        const int by = runner.rescales_copies_of_b(), below = MultiTile::MOST_TILES[runner.multi_tile.way], most = runner.panels_at_once();
        const Buffer rescaled(by ? (size_t)(2 * g.k * nr) * sizeof(T) : 0);
        const Buffer c((size_t)(below * most * MR * nr) * sizeof(T));
        char* const result = result_of(batch);
        runner.add_to(report);
        for (int64_t p = p0; p < p1; p += most) {
            const int panels_here = p1 - p < most ? 1 : most;
            const T* b = packed_b + p * g.k * nr;
            if (by) {
                isa.times((const float*)b, (float*)rescaled.p, panels_here * g.k * nr, (float)ldexp(1.0, by));
                b = (const T*)rescaled.p;
            }
            const int64_t col = p * nr, width = panels_here * nr;
            for (int64_t q = 0; q < count; q += below) {
                const int tiles = (int)(count - q < below ? count - q : below);
                const int64_t row = (first + q) * MR, rows = g.m - row < tiles * MR ? g.m - row : tiles * MR;
                Tile t = tile_at(batch, row, col, packed_a + q * g.k * MR, b, (T*)c.p);
                if (runner.filters_midpoints()) lowest.give(t, low_of_a(packed_a, q), low_of_b(packed_b, p));
                ThreadOfCall::poll(g.k * tiles * panels_here);
                if (g.c && g.c_col == 1) prefetch_rows(result, row, rows, col, g.n - col < width ? g.n - col : width);
                if (!runner.run_multi_tile(t, tiles, panels_here)) return p;
                if (g.c) save_tile((T*)c.p, result, row, (int)rows, col, (int)(g.n - col < width ? g.n - col : width), nullptr, width);
            }
        }
        return p1;
    }

    // Prefetches the lines of rows of the result, because these are all written at once after the last term.
    void prefetch_rows(const char* result, int64_t row, int64_t rows, int64_t col, int64_t cols) const {
        constexpr int64_t LINE = 64;
        const int64_t size = dtype_size(g.c_dtype);
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t at = 0; at < cols * size; at += LINE) prefetch_to_write(result + (result_row(row + i) + col) * size + at);
    }

    int64_t batches() const {
        int64_t all = 1;
        for (int d = 0; d < g.batch_dims; ++d) all *= g.batch[d];
        return all;
    }

    // block() for operands that are codes of a table. A plain register adds the terms of all rows of a tile at once. Other accumulators
    // get the terms of one row as a panel, and the other factor is 1.
    void table_block(int64_t batch, int64_t first, int64_t count, int64_t p0, int64_t p1, const Code* codes_b, const Stats& sb,
                     Report* report) const {
        const int64_t row0 = first * MR, row1 = row0 + count * MR < g.m ? row0 + count * MR : g.m;
        const Code* const a = (const Code*)g.a + offset(g.batch + g.batch_dims, g.batch, g.batch_dims, batch);
        std::vector<Code> codes((size_t)((row1 - row0) * g.k));
        const std::vector<T> ones((size_t)(g.k * MR), (T)1);
        std::vector<T> terms((size_t)(g.k * nr + nr));
        bool nan = sb.non_finite;
        for (int64_t i = row0; i < row1; ++i)
            for (int64_t k = 0; k < g.k; ++k) {
                const Code x = a[i * g.a_row + k * g.a_col];
                codes[(size_t)((i - row0) * g.k + place(at(), k))] = x;
                nan = nan || x + 1 == table->rows;
            }
        Stats values = table->stats;
        values.non_finite = values.non_finite || nan;
        if (integers() && (values.non_finite || values.lsb < 0)) report->fractions = 1;
        const Stats unit = {1.0, (double)g.k, 0, 1, 0};
        Runner<T> runner(isa, r, kind_carrier, nr, order.map(), unit, values, EMPTY_STATS, isa.directed);
        int64_t* const overflows = g.extras ? g.extras->overflows : nullptr;
        runner.block.from_table = true;
        runner.block.counts_overflows = overflows != nullptr;
        runner.choose_kernels();
        alignas(64) T c[MR * 64];
        char* const result = result_of(batch);
        if (runner.kernel == Kernel::TABLE_TERMS) {
            for (int64_t p = p0; p < p1; ++p)
                for (int64_t i = row0; i < row1; i += MR) {
                    const TileCodes<T> tile_codes = {table, codes.data() + (i - row0) * g.k, g.k, codes_b + p * g.k * nr};
                    Tile t = tile_at(batch, i, p * nr, nullptr, nullptr, c);
                    runner.run(t, nullptr, nullptr, 0, TileScales(), &tile_codes);
                    save_tile(c, result, i, t.rows, p * nr, t.cols, nullptr);
                }
            return runner.add_to(report);
        }
        for (int64_t p = p0; p < p1; ++p)
            for (int64_t i = row0; i < row1; ++i) {
                ThreadOfCall::poll(g.k / MR);
                const Code* const x = codes.data() + (i - row0) * g.k;
                if (runner.kernel == Kernel::TABLE_SUMS) {
                    table->sum_up(x, codes_b + p * g.k * nr, g.k, nr, c);
                    save_tile(c, result, i, 1, p * nr, (int)(g.n - p * nr < nr ? g.n - p * nr : nr), nullptr);
                    continue;
                }
                table->look_up(x, codes_b + p * g.k * nr, g.k, nr, terms.data());
                Tile t = tile_at(batch, i, p * nr, ones.data(), terms.data(), c);
                t.rows = 1;
                runner.run(t, nullptr, overflows ? overflows + (batch * g.m + i) * g.n + p * nr : nullptr, g.n);
                if (g.c) save_tile(c, result, i, 1, p * nr, t.cols, nullptr);
            }
        runner.add_to(report);
    }

    Tile tile_at(int64_t batch, int64_t row, int64_t col, const T* a, const T* b, T* c) const {
        const int rows = (int)(g.m - row < MR ? g.m - row : MR), cols = (int)(g.n - col < nr ? g.n - col : nr);
        const uint64_t row0 = (uint64_t)(gather ? row : batch * g.m + row) + g.row0, col0 = (uint64_t)(gather ? batch * g.n + col : col);
        return Tile{a, b, c, g.k, rows, cols, nullptr, nullptr, g.seed, row0, (uint32_t)col0, 0, nullptr, false, 0};
    }

    // block() for a palette: computes the elements of this carrier's members.
    void palette_block(int64_t batch, int64_t first, int64_t count, int64_t p0, int64_t p1, const T* packed_b, const Stats& sa,
                       const Stats& sb, const T* packed_a, Report* report) const {
        PaletteRunner<T> runner(isa, *members, nr, sa, sb, report);
        const Select select = select_of(batch);
        alignas(64) T c[MR * 64];
        uint8_t places[MR * 64];
        char* const result = result_of(batch);
        for (int64_t p = p0; p < p1; ++p)
            for (int64_t q = 0; q < count; ++q) {
                const int64_t row = (first + q) * MR, col = p * nr;
                const Tile t = tile_at(batch, row, col, packed_a + q * g.k * MR, packed_b + p * g.k * nr, c);
                const uint32_t present = select.load(*members, row, t.rows, col, t.cols, nr, places);
                if (!present) continue;
                runner.run(t, places, present);
                save_tile(c, result, row, t.rows, col, t.cols, places);
            }
    }

    bool integers() const {
        if (!members) return r.method == INTEGER;
        for (const Request& m : members->requests)
            if (m.method == INTEGER) return true;
        return false;
    }

    size_t a_bytes() const {
        return ((size_t)(block_rows * g.k * MR) * sizeof(T) + lowest.bytes(block_rows) + fields.bytes_a(block_rows) + 63) / 64 * 64;
    }

    static constexpr int64_t GROUP = 8;  // panels of B packed together
    void pack_group(const Matrix& b, int64_t first, int64_t count, T* packed_b, Stats* stats) const {
        if (table) return pack_codes((const Code*)b.data, first, count, (Code*)packed_b, stats);
        for (int64_t p = first; p < first + count; p += GROUP) {
            ThreadOfCall::poll(g.k);
            const int64_t n = first + count - p < GROUP ? first + count - p : GROUP;
            pack_b(isa, carrier, b, p * nr, n, nr, r.b, at(), packed_b + p * g.k * nr, planned ? stats : nullptr);
            if (lowest.kept) lowest.of_b(packed_b + p * g.k * nr, n, nr, *stats, low_of_b(packed_b, p));
            if (fields.kept) fields.of_panels_b(packed_b + p * g.k * nr, n, nr, fields_of_b(packed_b, p));
        }
    }

    // Packs panels of codes in the order in which kernels read terms: K x nr. Missing columns have the code 0.
    void pack_codes(const Code* b, int64_t first, int64_t count, Code* packed, Stats* stats) const {
        for (int64_t p = first; p < first + count; ++p)
            for (int64_t k = 0; k < g.k; ++k) {
                Code* const to = packed + (p * g.k + place(at(), k)) * nr;
                for (int j = 0; j < nr; ++j) {
                    const int64_t col = p * nr + j;
                    to[j] = col < g.n ? b[k * g.b_row + col * g.b_col] : (Code)0;
                    if (to[j] + 1 == table->columns) stats->non_finite = 1;
                }
            }
    }

    struct Split {  // the tasks of one batch: blocks of rows times groups of columns
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

    // Computes a batch in one thread. `pack`: B must be packed; false after the first of several batches with the same B.
    void one_batch_alone(int64_t batch, T* packed_b, T* packed_a, bool pack, Stats* sb, Report* report) const {
        const Matrix b = operand_b(batch);
        if (pack) {
            *sb = EMPTY_STATS;
            pack_group(b, 0, panels, packed_b, sb);
        }
        const Split s = split(1);
        for (int64_t i = 0; i < s.row_tasks * s.col_tasks; ++i) task(batch, s, i, packed_b, *sb, packed_a, report);
    }

    // Computes a batch with several threads. `packed_a` has a_bytes() for each thread.
    void one_batch(Call& call, int64_t batch, int threads, T* packed_b, char* packed_a, bool pack, Stats* sb, Report* report) const {
        const Matrix b = operand_b(batch);
        const Split s = split(threads);
        const int64_t tasks = s.row_tasks * s.col_tasks;
        std::atomic<int64_t> done{0};
        if (pack) *sb = EMPTY_STATS;
#pragma omp parallel num_threads(threads)
        {
            const FloatState state;
            const int me = thread_index(threads);
            const ThreadOfCall part(&call, me == 0);
            Stats local = EMPTY_STATS;
            Report mine = Report::empty();
            if (pack) {
#pragma omp for schedule(static)
                for (int64_t p = 0; p < panels; p += GROUP)
                    call.attempt([&] { pack_group(b, p, panels - p < GROUP ? panels - p : GROUP, packed_b, &local); });
#pragma omp critical(gemmsim_stats)
                merge(sb, local);
#pragma omp barrier
            }
            T* my_a = (T*)(packed_a + a_bytes() * (size_t)me);
#pragma omp for schedule(dynamic) nowait
            for (int64_t i = 0; i < tasks; ++i) {
                call.attempt([&] { task(batch, s, i, packed_b, *sb, my_a, &mine); });
                done.fetch_add(1, std::memory_order_release);
            }
            if (me == 0 && is_long()) call.wait(done, tasks);
#pragma omp critical(gemmsim_report)
            report->add(mine);
        }
        call.finish();
    }

    double work() const { return (double)g.m * g.n * (g.k + 16); }
    // Whether slow kernels may take about a second for this number of terms.
    bool is_long() const { return work() >= (double)(1 << 22); }

    // Computes many small batches, each in one thread.
    void many_batches(Call& call, int64_t count, int threads, bool shared_b, size_t panel_bytes, char* packed_a, Report* report) const {
        const size_t stride = (panel_bytes + 63) / 64 * 64;
        const Buffer all_b(stride * (size_t)threads);
#pragma omp parallel num_threads(threads)
        {
            const FloatState state;
            const size_t me = (size_t)thread_index(threads);
            const ThreadOfCall part(&call, me == 0);
            T* packed_b = (T*)(all_b.p + stride * me);
            Stats sb;
            Report mine = Report::empty();
            bool first = true;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < count; ++i)
                call.attempt([&] {
                    one_batch_alone(i, packed_b, (T*)(packed_a + a_bytes() * me), first || !shared_b, &sb, &mine);
                    first = false;
                });
#pragma omp critical(gemmsim_report_batches)
            report->add(mine);
        }
        call.finish();
    }

    // Computes the product. Throws Interrupted if a signal's handler raises, and std::bad_alloc if there is no memory for panels.
    void run(Report* report) const {
        Call call;
        int64_t batches = 1;
        bool shared_b = true;
        for (int d = 0; d < g.batch_dims; ++d) {
            batches *= g.batch[d];
            if (g.batch[2 * g.batch_dims + d] != 0 && g.batch[d] > 1) shared_b = false;
        }
        const size_t panel_bytes = (size_t)(panels * g.k * nr) * sizeof(T) + lowest.bytes(panels) + fields.bytes_b(panels, nr);
        const int threads = work() * batches < LEAST_THREADED_WORK ? 1 : g.threads;
        const Buffer packed_a(a_bytes() * (size_t)threads);
        if (threads > 1 && batches >= 2 * threads && work() < MOST_WORK_OF_A_BATCH)  // many small products
            return many_batches(call, batches, threads, shared_b, panel_bytes, packed_a.p, report);
        const Buffer packed_b(panel_bytes);
        Stats sb;
        for (int64_t i = 0; i < batches; ++i) {
            const bool pack = i == 0 || !shared_b;
            if (threads > 1) {
                one_batch(call, i, threads, (T*)packed_b.p, packed_a.p, pack, &sb, report);
                continue;
            }
            const FloatState state;
            const ThreadOfCall part(&call, true);
            call.attempt([&] { one_batch_alone(i, (T*)packed_b.p, (T*)packed_a.p, pack, &sb, report); });
            call.finish();
        }
    }
};

}  // namespace gemmsim
