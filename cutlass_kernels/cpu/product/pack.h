// Operand panels: any dtype and strides -> the carrier, rounded to the operand format, in the order the kernels read.
#pragma once
#include <string.h>
#include <vector>
#include "product/plan.h"

namespace gemmsim {

struct Matrix {
    const char* data;
    int32_t dtype;
    int64_t rows, cols, row_stride, col_stride;  // in elements
};

inline int64_t dtype_size(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// n elements from src into the carrier, rounded to the operand's format (once, from the source's own precision).
inline void load_operand(const Isa& isa, int carrier, const Matrix& m, int64_t offset, int64_t stride, int64_t n, const Cast& cast,
                         char* dst) {
    const char* src = m.data + offset * dtype_size(m.dtype);
    const bool narrow = carrier == 0 && m.dtype == F64 && (cast.flags & PRESENT);
    if (!narrow) {
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

template <class T, int N> inline void interleave(const T* __restrict src, int64_t pitch, int64_t n, T* __restrict dst) {
    for (int64_t k = 0; k < n; ++k)
        for (int i = 0; i < N; ++i) dst[k * N + i] = src[i * pitch + k];
}

// Where term k lies in a panel; null: in its place.
typedef const int64_t* Positions;
inline int64_t place(Positions p, int64_t k) { return p ? p[k] : k; }

// Rows of a scratch block lie this many elements further apart than they are long: a power of two would put all of
// them into the same few cache sets.
constexpr int64_t SKEW = 16;

// MR rows from row0 -> K x MR; missing rows are zero.
template <class T> inline void pack_a(const Isa& isa, int carrier, const Matrix& m, int64_t row0, const Cast& cast, Positions at, T* dst,
                                      Stats* stats) {
    constexpr int64_t CHUNK = 256, PITCH = CHUNK + SKEW;
    T rows[MR * PITCH];
    const int64_t count = m.rows - row0 < MR ? m.rows - row0 : MR;
    double sums[MR] = {0};
    if (count < MR) memset(rows, 0, sizeof rows);
    for (int64_t k = 0; k < m.cols; k += CHUNK) {
        const int64_t c = m.cols - k < CHUNK ? m.cols - k : CHUNK;
        for (int64_t i = 0; i < count; ++i) {
            load_operand(isa, carrier, m, (row0 + i) * m.row_stride + k * m.col_stride, m.col_stride, c, cast, (char*)(rows + i * PITCH));
            if (!stats) continue;
            Stats part = *stats;
            part.row_sum = 0;
            isa.stats(carrier, rows + i * PITCH, c, &part);
            sums[i] += part.row_sum;
            part.row_sum = stats->row_sum;
            *stats = part;
        }
        if (!at) interleave<T, MR>(rows, PITCH, c, dst + k * MR);
        else
            for (int64_t q = 0; q < c; ++q) interleave<T, MR>(rows + q, PITCH, 1, dst + at[k + q] * MR);
    }
    for (int i = 0; stats && i < MR; ++i)
        if (sums[i] > stats->row_sum) stats->row_sum = sums[i];
}

// Columns are contiguous in memory: read along k, then transpose.
template <class T> inline void pack_b_columns(const Isa& isa, int carrier, const Matrix& m, int64_t col0, int64_t count, int nr,
                                              const Cast& cast, Positions at, T* dst) {
    constexpr int64_t CHUNK = 128, PITCH = CHUNK + SKEW, WIDE = 32;
    T cols[WIDE * PITCH];
    for (int64_t k = 0; k < m.rows; k += CHUNK) {
        const int64_t c = m.rows - k < CHUNK ? m.rows - k : CHUNK;
        for (int64_t j = 0; j < count; ++j)
            load_operand(isa, carrier, m, (col0 + j) * m.col_stride + k, 1, c, cast, (char*)(cols + j * PITCH));
        for (int64_t q = 0; q < c; ++q)
            for (int64_t j = 0; j < count; ++j) dst[place(at, k + q) * nr + j] = cols[j * PITCH + q];
    }
}

// `panels` panels of nr columns from col0, each K x nr; missing columns are zero. Rows of B are read in one go across
// the panels, so that memory sees long runs. `stats` null: nobody asks.
template <class T> inline void pack_b(const Isa& isa, int carrier, const Matrix& m, int64_t col0, int64_t panels, int nr, const Cast& cast,
                                      Positions where, T* dst, Stats* stats) {
    const int64_t size = m.rows * nr;
    const bool columns = m.row_stride == 1 && m.col_stride != 1;
    const bool late = (cast.flags & PRESENT) && m.dtype != F64 && !columns;  // round whole panels in one call
    const bool copy = m.dtype == F32 && carrier == 0 && m.col_stride == 1;
    const Cast none = {};
    if (m.cols - col0 < panels * nr) memset(dst + (panels - 1) * size, 0, (size_t)size * sizeof(T));
    for (int64_t k = 0; !columns && k < m.rows; ++k)
        for (int64_t p = 0; p < panels; ++p) {
            const int64_t first = col0 + p * nr, count = m.cols - first < nr ? m.cols - first : nr,
                          at = k * m.row_stride + first * m.col_stride;
            T* to = dst + p * size + place(where, k) * nr;
            if (copy && (late || !(cast.flags & PRESENT))) memcpy(to, (const float*)m.data + at, (size_t)count * sizeof(float));
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
