// This file packs operand panels. It converts any dtype and strides to the carrier, rounds to the operand format, and
// stores terms in the order in which kernels read them.
#pragma once
#include <string.h>
#include <vector>
#include "product/kernel_choice.h"
#include "product/transpose.h"

namespace gemmsim {

struct Matrix {
    const char* data;
    int32_t dtype;
    int64_t rows, cols, row_stride, col_stride;  // in elements
};

inline int64_t dtype_size(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// Doubles are rounded before they are converted to floats, so that they are rounded only once.
inline bool rounds_narrower(int carrier, const Matrix& m, const Cast& cast) {
    return carrier == 0 && m.dtype == F64 && (cast.flags & PRESENT);
}

// Loads n elements from src into the carrier and rounds them to the operand's format, once, from the source's
// precision.
inline void load_operand(const Isa& isa, int carrier, const Matrix& m, int64_t offset, int64_t stride, int64_t n, const Cast& cast,
                         char* dst) {
    const char* src = m.data + offset * dtype_size(m.dtype);
    if (!rounds_narrower(carrier, m, cast)) {
        isa.load(carrier, src, m.dtype, stride, n, dst);
        if (cast.flags & PRESENT) isa.round(carrier, dst, n, cast, 0, 0, 0);
        return;
    }
    double wide[256];
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t c = n - i < 256 ? n - i : 256;
        isa.load(1, src + i * stride * 8, F64, stride, c, wide);
        isa.round(1, wide, c, cast, 0, 0, 0);
        for (int64_t j = 0; j < c; ++j) ((float*)dst)[i + j] = (float)wide[j];
    }
}

// Rows of a scratch block lie this many elements further apart than their length. A power of two would put all of them
// into the same few cache sets.
constexpr int64_t SKEW = 16;

// Whether the matrix already holds what the panels hold: numbers of the carrier that need no rounding.
template <class T> inline bool as_they_are(const Matrix& m, const Cast& cast) {
    return m.dtype == (sizeof(T) == 4 ? F32 : F64) && !(cast.flags & PRESENT);
}

// Computes bounds of `c` terms of a panel. Each of `sums` grows by at least the sum of its row's magnitudes.
template <class T> inline void panel_stats(const Isa& isa, int carrier, const T* panel, int64_t c, double* sums, Stats* stats) {
    Stats part = *stats;
    part.row_sum = 0;
    part.non_finite = 0;
    isa.stats(carrier, panel, c * MR, &part);
    T rows[MR] = {0};
    for (int64_t k = 0; !part.non_finite && k < c; ++k)
        for (int i = 0; i < MR; ++i) rows[i] += panel[k * MR + i] < 0 ? -panel[k * MR + i] : panel[k * MR + i];
    for (int i = 0; i < MR; ++i) sums[i] += part.non_finite ? part.row_sum : (double)rows[i] * (1.0 + 1e-6 * (double)(c + 16));
    part.row_sum = stats->row_sum;
    part.non_finite |= stats->non_finite;
    *stats = part;
}

inline void largest_sum(const double* sums, Stats* stats) {
    for (int i = 0; i < MR; ++i)
        if (sums[i] > stats->row_sum) stats->row_sum = sums[i];
}

// Accumulates bounds of a panel whose terms are packed in order.
struct PanelStats {
    Stats* stats;  // null: bounds are not needed
    double sums[MR] = {0};
    explicit PanelStats(Stats* s) : stats(s) {}
    template <class T> void check(const Isa& isa, int carrier, const T* panel, int64_t c) {
        if (stats) panel_stats(isa, carrier, panel, c, sums, stats);
    }
    void end() const {
        if (stats) largest_sum(sums, stats);
    }
};

// pack_a for a matrix whose columns are contiguous: these are already the panel's rows.
template <class T> inline void pack_a_columns(const Isa& isa, int carrier, const Matrix& m, int64_t row0, const Cast& cast, Positions at,
                                              T* dst, PanelStats& facts) {
    constexpr int64_t CHUNK = 256;
    alignas(64) uint64_t raw[CHUNK * MR];
    alignas(64) T panel[CHUNK * MR];
    const int64_t size = dtype_size(m.dtype), count = m.rows - row0 < MR ? m.rows - row0 : MR;
    const bool same = m.dtype == (sizeof(T) == 4 ? F32 : F64);
    if (count < MR) memset(raw, 0, sizeof raw);
    for (int64_t k = 0; k < m.cols; k += CHUNK) {
        const int64_t c = m.cols - k < CHUNK ? m.cols - k : CHUNK;
        const char* const from = m.data + (row0 + k * m.col_stride) * size;
        T* const to = at ? panel : dst + k * MR;
        char* const copied = same && count == MR ? (char*)to : (char*)raw;
        if (count == MR && size == 4)
            for (int64_t q = 0; q < c; ++q) memcpy(copied + q * MR * 4, from + q * m.col_stride * 4, MR * 4);
        else
            for (int64_t q = 0; q < c; ++q) memcpy(copied + q * MR * size, from + q * m.col_stride * size, (size_t)(count * size));
        if (copied != (char*)to) isa.load(carrier, raw, m.dtype, 1, c * MR, to);
        if (cast.flags & PRESENT) isa.round(carrier, to, c * MR, cast, 0, 0, 0);
        for (int64_t q = 0; at && q < c; ++q) memcpy(dst + at[k + q] * MR, panel + q * MR, MR * sizeof(T));
        facts.check(isa, carrier, to, c);
    }
}

// Packs MR rows from row0 into K x MR; missing rows are zero. The caller calls facts.end(), because other terms of
// these rows may follow.
template <class T> inline void pack_a(const Isa& isa, int carrier, const Matrix& m, int64_t row0, const Cast& cast, Positions at, T* dst,
                                      PanelStats& facts) {
    constexpr int64_t CHUNK = 256, PITCH = CHUNK + SKEW;
    if (m.row_stride == 1 && m.col_stride != 1 && !rounds_narrower(carrier, m, cast))
        return pack_a_columns(isa, carrier, m, row0, cast, at, dst, facts);
    Stats* const stats = facts.stats;
    T rows[MR * PITCH];
    const int64_t count = m.rows - row0 < MR ? m.rows - row0 : MR;
    const bool in_place = as_they_are<T>(m, cast) && m.col_stride == 1;
    if (count < MR) memset(dst, 0, (size_t)(m.cols * MR) * sizeof(T));
    for (int64_t k = 0; k < m.cols; k += CHUNK) {
        const int64_t c = m.cols - k < CHUNK ? m.cols - k : CHUNK, from = row0 * m.row_stride + k * m.col_stride;
        const T* const lines = in_place ? (const T*)m.data + from : rows;
        const int64_t pitch = in_place ? m.row_stride : PITCH;
        for (int64_t i = 0; i < count; ++i) {
            if (!in_place) load_operand(isa, carrier, m, from + i * m.row_stride, m.col_stride, c, cast, (char*)(rows + i * PITCH));
            if (!stats) continue;
            Stats part = *stats;
            part.row_sum = 0;
            isa.stats(carrier, lines + i * pitch, c, &part);
            facts.sums[i] += part.row_sum;
            part.row_sum = stats->row_sum;
            *stats = part;
        }
        lines_to_panel(lines, pitch, count, k, c, at, dst, MR);
    }
}

// Packs columns that are contiguous in memory: reads along k, then transposes.
template <class T> inline void pack_b_columns(const Isa& isa, int carrier, const Matrix& m, int64_t col0, int64_t count, int nr,
                                              const Cast& cast, Positions at, T* dst) {
    constexpr int64_t CHUNK = 128, PITCH = CHUNK + SKEW, WIDE = 32;
    T cols[WIDE * PITCH];
    const bool in_place = as_they_are<T>(m, cast);
    for (int64_t k = 0; k < m.rows; k += CHUNK) {
        const int64_t c = m.rows - k < CHUNK ? m.rows - k : CHUNK, from = col0 * m.col_stride + k;
        for (int64_t j = 0; j < count && !in_place; ++j)
            load_operand(isa, carrier, m, from + j * m.col_stride, 1, c, cast, (char*)(cols + j * PITCH));
        lines_to_panel(in_place ? (const T*)m.data + from : cols, in_place ? m.col_stride : PITCH, count, k, c, at, dst, nr);
    }
}

// Copies a row of a whole panel without a function call.
template <class T> inline void copy_row(T* to, const float* from, int64_t n) {
    if (n == 16) memcpy(to, from, 64);
    else if (n == 32) memcpy(to, from, 128);
    else memcpy(to, from, (size_t)n * sizeof(float));
}

// Prefetches a part of a row that will be read. Processors prefetch no rows that are pages apart by themselves.
inline void prefetch_row(const char* from, int64_t bytes) {
    constexpr int64_t LINE = 64;
    for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch(from + at);
}

constexpr int64_t WIDEST_ROW = 512;  // the most elements of a row of B that are loaded in one call

// Packs `panels` panels of nr columns from col0, each K x nr; missing columns are zero. Each row of B is read across
// all panels at once, so that memory accesses are long. `stats` null: bounds are not needed.
template <class T> inline void pack_b(const Isa& isa, int carrier, const Matrix& m, int64_t col0, int64_t panels, int nr, const Cast& cast,
                                      Positions where, T* dst, Stats* stats) {
    const int64_t size = m.rows * nr;
    const bool columns = m.row_stride == 1 && (m.col_stride != 1 || m.cols == 1);
    const bool late = (cast.flags & PRESENT) && m.dtype != F64 && !columns;  // round whole panels in one call
    const bool copy = m.dtype == F32 && carrier == 0 && m.col_stride == 1;
    const Cast none = {};
    const int64_t ahead = PREFETCHED_ROWS * m.row_stride;
    // Rows without gaps are loaded for several panels in one call.
    const bool at_once =
        !columns && !copy && carrier == 0 && m.dtype != F64 && m.col_stride == 1 && panels > 1 && panels * nr <= WIDEST_ROW;
    alignas(64) T row[WIDEST_ROW];
    if (m.cols - col0 < panels * nr) memset(dst + (panels - 1) * size, 0, (size_t)size * sizeof(T));
    for (int64_t k = 0; !columns && k < m.rows; ++k)
        for (int64_t p = 0; p < panels; ++p) {
            const int64_t first = col0 + p * nr, count = m.cols - first < nr ? m.cols - first : nr,
                          at = k * m.row_stride + first * m.col_stride;
            T* to = dst + p * size + place(where, k) * nr;
            if (m.col_stride == 1) prefetch_row(m.data + (at + ahead) * dtype_size(m.dtype), count * dtype_size(m.dtype));
            if (at_once && p == 0) {
                const int64_t all = m.cols - col0 < panels * nr ? m.cols - col0 : panels * nr;
                load_operand(isa, carrier, m, at, 1, all, none, (char*)row);
            }
            if (at_once) copy_row(to, (const float*)row + p * nr, count);
            else if (copy && (late || !(cast.flags & PRESENT))) copy_row(to, (const float*)m.data + at, count);
            else load_operand(isa, carrier, m, at, m.col_stride, count, late ? none : cast, (char*)to);
        }
    for (int64_t p = 0; p < panels; ++p) {
        const int64_t first = col0 + p * nr, count = m.cols - first < nr ? m.cols - first : nr;
        if (columns) pack_b_columns(isa, carrier, m, first, count, nr, cast, where, dst + p * size);
        if (late) isa.round(carrier, dst + p * size, size, cast, 0, 0, 0);
        if (stats) isa.stats(carrier, dst + p * size, size, stats);
    }
}

inline void merge(Stats* into, const Stats& s) {
    if (s.max_abs > into->max_abs) into->max_abs = s.max_abs;
    if (s.row_sum > into->row_sum) into->row_sum = s.row_sum;
    if (s.lsb < into->lsb) into->lsb = s.lsb;
    if (s.width > into->width) into->width = s.width;
    into->non_finite |= s.non_finite;
}

}  // namespace gemmsim
