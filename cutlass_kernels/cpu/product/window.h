// The panels of one tile in this file hold only some of its terms at a time. They serve products with few outputs and
// many terms. The panels of all terms would be many times as large as the operands there, because a tile has MR rows
// and nr columns however few are in use.
#pragma once
#include "product/scratch.h"
#include "product/implicit_im2col.h"
#include "product/lookup.h"
#include "product/k_permutation.h"
#include "product/parts.h"

namespace gemmsim {

// Terms [first, first + n) of an operand whose terms are columns (A) or rows (B).
inline Matrix columns_of(const Matrix& m, int64_t first, int64_t n) {
    return Matrix{m.data + first * m.col_stride * dtype_size(m.dtype), m.dtype, m.rows, n, m.row_stride, m.col_stride};
}
inline Matrix rows_of(const Matrix& m, int64_t first, int64_t n) {
    return Matrix{m.data + first * m.row_stride * dtype_size(m.dtype), m.dtype, n, m.cols, m.row_stride, m.col_stride};
}

template <class T> struct OperandWindow : Window<T> {
    static constexpr int64_t CHUNK = 256;
    const Isa& isa;
    const int carrier, nr;
    const Request& r;
    const Matrix a, b;
    const Gather* const gather;  // index tables of A; null: A is a matrix
    const TermOrder* order;
    const int64_t row0, col0;
    const Buffer memory_a, memory_b;
    int scaled_by = 0;  // exponent of the power of two that A is multiplied by
    PanelStats facts_a{nullptr};
    Stats* facts_b = nullptr;

    OperandWindow(const Isa& isa_, const Request& request, int columns, const Matrix& left, const Matrix& right, const Gather* tables,
                  const TermOrder& terms, int64_t row, int64_t col)
        : Window<T>(request.k, request.hardware.k), isa(isa_), carrier(sizeof(T) == 4 ? 0 : 1), nr(columns), r(request), a(left), b(right),
          gather(tables), order(&terms), row0(row), col0(col), memory_a((size_t)(this->most * MR) * sizeof(T)),
          memory_b((size_t)(this->most * nr) * sizeof(T)) {
        this->panel_a = (T*)memory_a.p;
        this->panel_b = (T*)memory_b.p;
    }

    // Computes bounds of all terms. This packs each term once.
    void check(Stats* of_a, Stats* of_b) {
        facts_a = PanelStats(of_a);
        facts_b = of_b;
        for (int64_t k = 0; k < r.k; k += this->most) {
            ThreadOfCall::poll(this->most);
            this->forget();
            this->move(k, k, r.k);
        }
        facts_a.end();
        facts_a = PanelStats(nullptr);
        facts_b = nullptr;
        if (r.k > this->most) this->forget();
    }
    // From now on the terms have another order.
    void reorder(const TermOrder& terms) {
        if (order == &terms) return;
        order = &terms;
        this->forget();
    }

private:
    void pack(int64_t first, int64_t n) override {
        if (order->natural()) {
            if (gather) {
                Gather some = *gather;
                some.cols += first;
                Matrix m = a;
                m.cols = n;
                pack_gathered(isa, carrier, m, some, row0, nullptr, this->panel_a, facts_a);
            } else pack_a(isa, carrier, columns_of(a, first, n), row0, r.a, nullptr, this->panel_a, facts_a);
            pack_b(isa, carrier, rows_of(b, first, n), col0, 1, nr, r.b, nullptr, this->panel_b, facts_b);
        } else {
            pack_ordered(first, n);
            facts_a.check(isa, carrier, this->panel_a, n);
            if (facts_b) isa.stats(carrier, this->panel_b, n * nr, facts_b);
        }
        if (scaled_by) isa.times((const float*)this->panel_a, (float*)this->panel_a, n * MR, (float)ldexp(1.0, scaled_by));
    }

    void pack_ordered(int64_t first, int64_t n) {
        int64_t terms[CHUNK], places[CHUNK];
        for (int64_t k = 0; k < n; k += CHUNK) {
            const int64_t c = n - k < CHUNK ? n - k : CHUNK;
            order->terms(first + k, c, terms);
            int64_t lines[MR];
            int64_t count = a.rows - row0 < MR ? a.rows - row0 : MR;
            for (int64_t i = 0; i < count; ++i) lines[i] = line_of_a(row0 + i);
            for (int64_t q = 0; q < c; ++q) places[q] = gather ? gather->cols[terms[q]] : terms[q] * a.col_stride;
            collect(a, lines, count, places, c, gather ? Cast{} : r.a, this->panel_a + k * MR, MR);
            for (int64_t q = 0; q < c; ++q) places[q] = terms[q] * b.row_stride;
            for (int64_t j = 0; j < nr; j += MR) {
                count = b.cols - col0 - j < MR ? b.cols - col0 - j : MR;
                for (int64_t i = 0; i < count; ++i) lines[i] = (col0 + j + i) * b.col_stride;
                collect(b, lines, count < 0 ? 0 : count, places, c, r.b, this->panel_b + k * nr + j, nr);
            }
        }
    }
    int64_t line_of_a(int64_t row) const {
        return gather ? row / gather->inner * gather->a_outer + gather->rows[row % gather->inner] : row * a.row_stride;
    }
    // Stores element lines[i] + places[q], rounded, at to[q * width + i]. There are up to MR lines; missing lines are
    // zero.
    void collect(const Matrix& m, const int64_t* lines, int64_t count, const int64_t* places, int64_t c, const Cast& cast, T* to,
                 int64_t width) const {
        alignas(64) uint64_t raw[CHUNK * MR];
        alignas(64) T panel[CHUNK * MR];
        if (count) gather_bits(m, lines, count, places, c, raw);
        else memset(raw, 0, sizeof raw);
        load_operand(isa, carrier, Matrix{(const char*)raw, m.dtype, 1, c * MR, 0, 1}, 0, 1, c * MR, cast, (char*)panel);
        const int64_t used = width < MR ? width : MR;
        for (int64_t q = 0; q < c; ++q) memcpy(to + q * width, panel + q * MR, (size_t)used * sizeof(T));
    }
};

// A window for a table's operands. It holds the products of one row's codes; the other factor is 1.
template <class T> struct TableWindow : Window<T> {
    const Table<T>& table;
    const TermOrder& order;
    const Code *a, *b;  // the row, and the first of the tile's columns
    const int64_t a_col, b_row, b_col;
    const int cols, nr;
    const int64_t k;
    std::vector<T> ones, products;
    std::vector<Code> left, right;

    TableWindow(const Table<T>& from, const TermOrder& terms, const Code* row, int64_t row_stride, const Code* columns, int64_t term_stride,
                int64_t column_stride, int count, int width, int64_t all)
        : Window<T>(all, 1), table(from), order(terms), a(row), b(columns), a_col(row_stride), b_row(term_stride), b_col(column_stride),
          cols(count), nr(width), k(all), ones((size_t)(this->most * MR), (T)1), products((size_t)(this->most * nr + nr)),
          left((size_t)this->most), right((size_t)(this->most * nr), (Code)0) {
        this->panel_a = ones.data();
        this->panel_b = products.data();
    }
    // Whether an operand's code is that of a NaN.
    bool has_nan() {
        bool nan = false;
        for (int64_t first = 0; first < k; first += this->most) {
            const int64_t n = k - first < this->most ? k - first : this->most;
            ThreadOfCall::poll(n);
            codes(first, n);
            for (int64_t q = 0; q < n; ++q) {
                nan = nan || left[(size_t)q] + 1 == table.rows;
                for (int j = 0; j < cols; ++j) nan = nan || right[(size_t)(q * nr + j)] + 1 == table.columns;
            }
        }
        return nan;
    }

private:
    void codes(int64_t first, int64_t n) {
        constexpr int64_t CHUNK = 256;
        int64_t terms[CHUNK];
        for (int64_t at = 0; at < n; at += CHUNK) {
            const int64_t c = n - at < CHUNK ? n - at : CHUNK;
            order.terms(first + at, c, terms);
            for (int64_t q = 0; q < c; ++q) {
                left[(size_t)(at + q)] = a[terms[q] * a_col];
                for (int j = 0; j < cols; ++j) right[(size_t)((at + q) * nr + j)] = b[terms[q] * b_row + j * b_col];
            }
        }
    }
    void pack(int64_t first, int64_t n) override {
        codes(first, n);
        table.look_up(left.data(), right.data(), n, nr, products.data());
    }
};

}  // namespace gemmsim
