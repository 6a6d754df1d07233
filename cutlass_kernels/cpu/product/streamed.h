// Products of few outputs and many terms, tile by tile. Product chooses this if panels of all terms would be large and much larger than the
// operands (Product::streams). Each tile packs its own operands, a limited number of terms at a time (product/window.h), and kernels
// continue from part to part. Panels then take about as much memory as the operands, or less.
#pragma once
#include "product/product.h"

namespace gemmsim {

template <class T> struct StreamedProduct {
    const Product<T>& all;
    const GemmArgs& g = all.g;
    const Isa& isa = all.isa;
    const Request& r = all.r;
    const int nr = all.nr;

    OperandWindow<T> window_of(int64_t batch, int64_t row, int64_t col) const {
        return OperandWindow<T>(isa, r, nr, all.operand_a(batch), all.operand_b(batch), all.gather, all.order, row, col);
    }

    // Computes the tile of outputs whose first element is at `row` and `col`.
    void tile(int64_t batch, int64_t row, int64_t col, Report* report) const {
        if (all.table) return table_rows(batch, row, col, report);
        OperandWindow<T> window = window_of(batch, row, col);
        alignas(64) T c[MR * 64];
        Tile t = all.tile_at(batch, row, col, nullptr, nullptr, c);
        Stats sa = EMPTY_STATS, sb = EMPTY_STATS, sc = EMPTY_STATS;
        if (all.planned) window.check(&sa, &sb);
        if (all.integers() && (sa.non_finite || sb.non_finite || sa.lsb < 0 || sb.lsb < 0)) report->fractions = 1;
        if (all.members) return palette(batch, row, col, t, sa, sb, window, report);
        alignas(64) T start[MR * 64];
        const Addend addend = all.addend_of(batch);
        if (r.init) addend.load(isa, row, t.rows, col, t.cols, nr, start);
        if (r.init && all.planned) sc = addend.template stats<T>(isa, row, t.rows, col, t.cols, nr);
        Runner<T> runner(isa, r, all.kind_carrier, nr, all.order.map(), sa, sb, sc, isa.directed);
        const std::unique_ptr<EventCounter<T>> counter(all.events ? new EventCounter<T>{isa, r, *all.events, nr} : nullptr);
        if (counter) counter->check(sa, sb, all.planned);
        runner.set_counter(counter.get());
        runner.block.scales = g.extras ? g.extras->scales : nullptr;
        runner.block.counts_overflows = g.extras && g.extras->overflows;
        runner.block.may_scale = true;
        runner.choose_kernels();
        window.scaled_by = runner.scaled_by;
        if (runner.scaled_by) window.forget();
        const TileScales scales = all.scales_of(batch, row, col);
        runner.run(t, start, overflows(batch, row, col), g.n, scales, nullptr, &window);
        runner.add_to(report);
        if (counter) counter->add_to(all.events->counts, all.batches() * g.m * g.n, (batch * g.m + row) * g.n + col, g.n, t.rows, t.cols);
        if (g.c) all.save_tile(c, all.result_of(batch), row, t.rows, col, t.cols, nullptr);
    }

    int64_t* overflows(int64_t batch, int64_t row, int64_t col) const {
        return g.extras && g.extras->overflows ? g.extras->overflows + (batch * g.m + row) * g.n + col : nullptr;
    }

    // tile() for a palette: computes the elements of this carrier's members.
    void palette(int64_t batch, int64_t row, int64_t col, const Tile& t, const Stats& sa, const Stats& sb, OperandWindow<T>& window,
                 Report* report) const {
        PaletteRunner<T> runner(isa, *all.members, nr, sa, sb, report);
        runner.window = &window;
        uint8_t places[MR * 64];
        const uint32_t present = all.select_of(batch).load(*all.members, row, t.rows, col, t.cols, nr, places);
        if (!present) return;
        runner.run(t, places, present);
        all.save_tile((T*)t.c, all.result_of(batch), row, t.rows, col, t.cols, places);
    }

    // tile() for codes of a table, row by row: the terms of a row are a panel of products, and the other factor is 1.
    void table_rows(int64_t batch, int64_t row, int64_t col, Report* report) const {
        const Matrix b = all.operand_b(batch);
        const Code* const a = (const Code*)g.a + all.offset(g.batch + g.batch_dims, g.batch, g.batch_dims, batch);
        alignas(64) T c[MR * 64];
        const int rows = all.tile_at(batch, row, col, nullptr, nullptr, c).rows;
        for (int64_t i = row; i < row + rows; ++i) {
            Tile t = all.tile_at(batch, i, col, nullptr, nullptr, c);
            t.rows = 1;
            TableWindow<T> window(*all.table, all.order, a + i * g.a_row, g.a_col, (const Code*)b.data + col * g.b_col, g.b_row, g.b_col,
                                  t.cols, nr, g.k);
            Stats values = all.table->stats;
            values.non_finite = values.non_finite || window.has_nan();
            if (all.integers() && (values.non_finite || values.lsb < 0)) report->fractions = 1;
            const Stats unit = {1.0, (double)g.k, 0, 1, 0};
            Runner<T> runner(isa, r, all.kind_carrier, nr, all.order.map(), unit, values, EMPTY_STATS, isa.directed);
            runner.block.counts_overflows = g.extras && g.extras->overflows;
            runner.choose_kernels();
            runner.run(t, nullptr, overflows(batch, i, col), g.n, TileScales(), nullptr, &window);
            runner.add_to(report);
            if (g.c) all.save_tile(c, all.result_of(batch), i, 1, col, t.cols, nullptr);
        }
    }

    void run(Report* report) const {
        Call call;
        const int64_t in_batch = all.blocks * all.panels, tasks = all.batches() * in_batch;
        const int threads = tasks < g.threads ? (int)tasks : g.threads;
        std::atomic<int64_t> done{0};
#pragma omp parallel num_threads(threads)
        {
            const FloatState state;
            const bool calling = thread_index(threads) == 0;
            const ThreadOfCall part(&call, calling);
            Report mine = Report::empty();
#pragma omp for schedule(dynamic) nowait
            for (int64_t i = 0; i < tasks; ++i) {
                call.attempt([&] { tile(i / in_batch, i % in_batch / all.panels * MR, i % all.panels * nr, &mine); });
                done.fetch_add(1, std::memory_order_release);
            }
            if (calling) call.wait(done, tasks);
#pragma omp critical(gemmsim_report_streamed)
            report->add(mine);
        }
        call.finish();
    }
};

}  // namespace gemmsim
