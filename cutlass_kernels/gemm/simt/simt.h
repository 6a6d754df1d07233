// Matrix products on ordinary arithmetic units: out = to_dtype(cast_out(accumulator over k of cast_a(a) cast_b(b))), for batches of
// matrices of any strides. A block computes a tile, and each of its threads has some outputs in registers. These kernels compute every
// accumulator; gemmsim/backends/cuda/simt/gemm.py launches them.
#pragma once
#include "gemm/simt/epilogue.h"
#include "gemm/simt/implicit_im2col.h"
#include "gemm/simt/orders.h"
#include "gemm/simt/runs.h"

namespace gemmsim {

template <GemmConfig K> struct Gemm {
    typedef typename Steps<K>::T T;
    typedef typename RunOf<K>::type Run;
    typedef Totals<K> Tile;
    static constexpr int R = K.rows, C = K.cols, M = K.down * R, N = K.across * C;

    // Returns the offset in elements from the tensor's start to matrix `index` of the batch.
    static GEMMSIM_HD int64_t offset(const GemmArgs& g, const int64_t* strides, int64_t index) {
        int64_t at = 0;
        GEMMSIM_NO_UNROLL for (int d = g.dims - 1; d >= 0; --d) {
            const int64_t rest = index / g.batch[d];
            at += strides[d] * (index - rest * g.batch[d]);
            index = rest;
        }
        return at;
    }

    // Calls use(i, j, row, column) for each output of the thread that lies in the matrix.
    template <class USE> static GEMMSIM_HD void outputs(const GemmArgs& g, int64_t row0, int64_t col0, int ty, int tx, USE use) {
        if (K.loaders && ty >= K.down) return;  // the thread only loads
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            const int64_t row = row0 + Rows<K>::line(ty, i), col = col0 + Columns<K>::line(tx, j);
            if (row < g.m && col < g.n) use(i, j, row, col);
        }
    }

    static GEMMSIM_HD bool selected(const GemmArgs& g, const uint8_t* select, int64_t row, int64_t col) {
        return select[row * g.select_row + col * g.select_col] == g.member;
    }
    // Returns whether any output of the block selects this member. All threads get the same result.
    static GEMMSIM_HD bool any_selected(const GemmArgs& g, const uint8_t* select, int64_t row0, int64_t col0, int tid) {
        uint32_t mine = 0;
        outputs(g, row0, col0, tid / K.across, tid % K.across,
                [&](int, int, int64_t row, int64_t col) { mine |= selected(g, select, row, col) ? 1u : 0u; });
        uint32_t* const words = (uint32_t*)shared_memory();
        warp_reduce(words, (uint32_t)tid, mine);
        block_sync();
        uint32_t any = 0;
        for (int w = 0; w < gemm_threads(K) / 32; ++w) any |= words[w];
        block_sync();
        return any != 0;
    }

    static GEMMSIM_HD void load_addend(const GemmArgs& g, int64_t batch, int64_t row0, int64_t col0, int tid, Tile& x) {
        typedef typename Storage<K.c>::Word Word;
        const Word* const c = (const Word*)g.c + offset(g, g.c_batch, batch);
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) x.v[i][j] = 0;
        outputs(g, row0, col0, tid / K.across, tid % K.across,
                [&](int i, int j, int64_t row, int64_t col) { x.v[i][j] = load_value<K.c, T>(c[row * g.c_row + col * g.c_col]); });
    }

    // Adds the addend as one more term, without a product. Its random bits have k = K.
    static GEMMSIM_HD void add_last(const Place<K>& place, int64_t k, const Tile& c, Tile& total, Run& run) {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            uint32_t draw = 0;
            if constexpr (K.add.mode >= SR) draw = place.draw(i, j, k, SITE_ADD, K.add.rbits);
            const T before = total.v[i][j];
            total.v[i][j] = Steps<K>::Add::sum(before, c.v[i][j], draw);
            if constexpr (K.counted.present) run.events.template sum<0, K.add>(i, j, before, c.v[i][j], total.v[i][j], draw);
        }
        if constexpr (K.counted.present) run.events.settle();
    }

    static GEMMSIM_HD int64_t row_of_output(const GemmArgs& g, int64_t row) {
        if constexpr (!K.gathered) return row * g.out_row;
        const int64_t image = row / g.inner;
        return image * g.out_outer + (row - image * g.inner) * g.out_row;
    }

    static GEMMSIM_HD void save(const GemmArgs& g, int64_t batch, const uint8_t* select, int64_t row0, int64_t col0, int tid,
                                const Tile& total) {
        typedef Finisher<K> Last;
        typename Last::Word* const out = (typename Last::Word*)g.out + offset(g, g.out_batch, batch);
        const typename Last::Bias* bias = nullptr;
        if constexpr (Last::BIASED) bias = (const typename Last::Bias*)g.bias + offset(g, g.bias_batch, batch);
        outputs(g, row0, col0, tid / K.across, tid % K.across, [&](int i, int j, int64_t row, int64_t col) {
            if constexpr (K.select)
                if (!selected(g, select, row, col)) return;
            out[row_of_output(g, row) + col * g.out_col] = Last::apply(total.v[i][j], bias + col * g.bias_col);
        });
    }

    static GEMMSIM_HD void save_counts(const GemmArgs& g, int64_t batch, int64_t row0, int64_t col0, int tid, const Run& run) {
        int64_t* const out = (int64_t*)g.out + offset(g, g.out_batch, batch);
        outputs(g, row0, col0, tid / K.across, tid % K.across, [&](int i, int j, int64_t row, int64_t col) {
            int64_t& all = out[row * g.out_row + col * g.out_col];
            all = run.count[i][j] < 0 ? -1 : all + run.count[i][j];
        });
    }

    static GEMMSIM_HD void save_events(const GemmArgs& g, int64_t batch, int64_t row0, int64_t col0, int tid, const Run& run) {
        const int64_t each = g.m * g.n;
        outputs(g, row0, col0, tid / K.across, tid % K.across, [&](int i, int j, int64_t row, int64_t col) {
            int64_t* const first = g.events + batch * each + row * g.n + col;
            GEMMSIM_UNROLL for (int e = 0; e < EVENTS; ++e) first[e * g.batches * each] += (int64_t)run.events.n[i][j][e];
        });
    }

    // Writes the partial sum of a run for the kernel that combines them (split_k_reduce.h).
    static GEMMSIM_HD void save_part(const GemmArgs& g, int64_t run, int64_t batch, int64_t row0, int64_t col0, int tid,
                                     const Tile& total) {
        T* const out = (T*)g.totals + (run * g.batches + batch) * g.m * g.n;
        outputs(g, row0, col0, tid / K.across, tid % K.across,
                [&](int i, int j, int64_t row, int64_t col) { out[row * g.n + col] = total.v[i][j]; });
    }

    // The terms [first, end) that a block adds. With split-K these are the runs [first_run, end_run). For an exact sum first_run is the
    // number of the slice.
    struct Part {
        int64_t first_run, end_run;
        int first, end;
    };
    static GEMMSIM_HD Part part_of(const GemmArgs& g, int64_t slice) {
        if constexpr (K.split != PART) return Part{0, 0, 0, (int)g.k};
        else if constexpr (K.levels == 0) {
            const int64_t first = slice * g.slice, end = first + g.slice < g.k ? first + g.slice : g.k;
            return Part{slice, slice + 1, (int)first, (int)end};
        } else {
            const RunsOf<K.wrapper[0].order> runs(g.size[0], g.k);
            const int64_t first = slice * g.slice, end = first + g.slice < runs.count ? first + g.slice : runs.count;
            return Part{first, end, (int)runs.begin(first), (int)runs.begin(end)};
        }
    }
    // Computes and writes the block's part of an exact sum, which is not rounded yet.
    static GEMMSIM_HD void save_sum(const GemmArgs& g, const Part& part, int64_t batch, int64_t row0, int64_t col0, int tid,
                                    Orders<K, Run>& orders, const Run& run) {
        orders.run.start();
        orders.terms(part.first, part.end);
        typename Run::Part* const out = (typename Run::Part*)g.totals + (part.first_run * g.batches + batch) * g.m * g.n;
        outputs(g, row0, col0, tid / K.across, tid % K.across,
                [&](int i, int j, int64_t row, int64_t col) { out[row * g.n + col] = run.part(i, j); });
    }
    // Computes each run of a part and writes its partial sum.
    static GEMMSIM_HD void save_runs(const GemmArgs& g, const Part& part, int64_t batch, int64_t row0, int64_t col0, int tid,
                                     Orders<K, Run>& orders) {
        const RunsOf<K.wrapper[0].order> runs(g.size[0], g.k);
        orders.runs = part.first_run;
        GEMMSIM_NO_UNROLL for (int64_t at = part.first_run; at < part.end_run; ++at) {
            Tile total;
            orders.leaf(runs.begin(at), runs.begin(at + 1), total);
            save_part(g, at, batch, row0, col0, tid, total);
        }
    }

    static GEMMSIM_HD void tile(const GemmArgs& g, const Part& part, int64_t batch, int64_t row0, int64_t col0, int tid) {
        const uint8_t* select = nullptr;
        if constexpr (K.select) {
            select = g.select + offset(g, g.select_batch, batch);
            if (!any_selected(g, select, row0, col0, tid)) return;
        }
        Stream<K> stream;
        const int lane = Stream<K>::loader(tid);
        if constexpr (K.gathered) stream.a.start(g, offset(g, g.a_batch, batch), row0, lane);
        else stream.a.start(g.a, offset(g, g.a_batch, batch), row0, g.m, g.a_row, g.a_col, lane);
        stream.b.start(g.b, offset(g, g.b_batch, batch), col0, g.n, g.b_col, g.b_row, lane);
        if constexpr (K.table.shared) stream.entries = (const typename Products<K>::Entry*)Stream<K>::table();
        else if constexpr (K.table.columns) stream.entries = (const typename Products<K>::Entry*)g.products;
        stream.order = g.term;
        stream.k = part.end;
        stream.tid = tid;
        stream.template start<Run::MEASURES>(part.first);
        // Random bits count the columns of all groups of a convolution as those of one product.
        const int64_t first_row = (K.gathered ? row0 : batch * g.m + row0) + (int64_t)g.row;
        const int64_t first_col = K.gathered ? batch * g.n + col0 : col0;
        const Place<K> place = {first_row, first_col, row0, tid / K.across, tid % K.across, g.seed, g.key};
        Run run;
        Tile total, addend;
        if constexpr (K.init != FROM_ZERO) load_addend(g, batch, row0, col0, tid, addend);
        BlockScales<K> scales = {g, nullptr, nullptr};
        if constexpr (K.scale_a.present) scales.a = g.scale_a + offset(g, g.scale_a_batch, batch);
        if constexpr (K.scale_b.present) scales.b = g.scale_b + offset(g, g.scale_b_batch, batch);
        if constexpr (SAME<Run, ScaledHardwareRun<K>>) run.scales = &scales;
        Orders<K, Run> orders = {stream, place, g.size, run, scales, g.schedule, g.schedule_count};
        if constexpr (K.split == PART && K.levels == 0) return save_sum(g, part, batch, row0, col0, tid, orders, run);
        else if constexpr (K.split == PART) return save_runs(g, part, batch, row0, col0, tid, orders);
        if constexpr (K.init == C_FIRST) {
            run.start();
            run.start_from(addend);
            orders.terms(0, g.k);
            run.finish(place, total, g.k, 0);
        } else {
            if (g.k == 0) Orders<K, Run>::clear(total);
            else orders.template walk<0>(0, g.k, total);
        }
        if constexpr (BlockScales<K>::TENSOR) orders.times_tensor_scales(total);
        if constexpr (K.init == C_LAST) add_last(place, g.k, addend, total, run);
        if constexpr (K.count) save_counts(g, batch, row0, col0, tid, run);
        else save(g, batch, select, row0, col0, tid, total);
        if constexpr (K.counted.present) save_events(g, batch, row0, col0, tid, run);
    }

    // Computes the tiles of a block. Tiles are ordered in bands of eight rows of tiles, so that tiles computed at the same time share
    // operands.
    static GEMMSIM_HD void body(const GemmArgs& g, int tid, int64_t block, int64_t blocks) {
        constexpr int64_t BAND = 8;
        if constexpr (K.table.shared) Products<K>::copy(g.products, Stream<K>::table(), tid);
        const int64_t down = (g.m + M - 1) / M, across = (g.n + N - 1) / N, each = down * across;
        const int64_t all = each * g.batches, slices = K.split == PART ? g.slices : 1;
        GEMMSIM_NO_UNROLL for (int64_t one = block; one < all * slices; one += blocks) {
            const int64_t slice = slices == 1 ? 0 : one / all, at = one - slice * all;
            const int64_t batch = at / each, index = at - batch * each, band = index / (BAND * across);
            const int64_t height = down - band * BAND < BAND ? down - band * BAND : BAND, rest = index - band * BAND * across;
            block_sync();  // no thread reads the previous tile's terms any more
            tile(g, part_of(g, slice), batch, (band * BAND + rest % height) * M, rest / height * N, tid);
        }
    }
};

// The number of bytes of dynamic shared memory that a block needs.
template <GemmConfig K> constexpr unsigned gemm_shared_bytes() { return Stream<K>::BYTES; }

template <GemmConfig K> GEMMSIM_HD void gemm_body(const GemmArgs& g, uint32_t tid, uint32_t block, uint32_t blocks) {
    Gemm<K>::body(g, (int)tid, block, blocks);
}

}  // namespace gemmsim
