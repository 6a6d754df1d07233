// Operand panels: any dtype and strides -> the carrier, rounded to the operand format, in the order the kernels read.
#pragma once
#include <string.h>
#include <vector>
#include "plan.h"

namespace gemmsim {

struct Matrix {
    const char* data;
    int32_t dtype;
    int64_t rows, cols, row_stride, col_stride;  // in elements
};

inline int64_t dtype_size(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// n elements from src into the carrier, rounded to the operand's format (once, from the source's own precision).
inline void load_operand(const Isa& isa, int carrier, const Matrix& m, int64_t offset, int64_t stride, int64_t n, const Cast& cast, char* dst) {
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

// MR rows from row0 -> K x MR; missing rows are zero.
template <class T> inline void pack_a(const Isa& isa, int carrier, const Matrix& m, int64_t row0, const Cast& cast, T* dst, Stats* stats) {
    constexpr int64_t CHUNK = 256;
    T rows[MR * CHUNK];
    const int64_t count = m.rows - row0 < MR ? m.rows - row0 : MR;
    double sums[MR] = {0};
    if (count < MR) memset(rows, 0, sizeof rows);
    for (int64_t k = 0; k < m.cols; k += CHUNK) {
        const int64_t c = m.cols - k < CHUNK ? m.cols - k : CHUNK;
        for (int64_t i = 0; i < count; ++i) {
            load_operand(isa, carrier, m, (row0 + i) * m.row_stride + k * m.col_stride, m.col_stride, c, cast, (char*)(rows + i * CHUNK));
            Stats part = *stats;
            part.row_sum = 0;
            isa.stats(carrier, rows + i * CHUNK, c, &part);
            sums[i] += part.row_sum;
            part.row_sum = stats->row_sum;
            *stats = part;
        }
        interleave<T, MR>(rows, CHUNK, c, dst + k * MR);
    }
    for (int i = 0; i < MR; ++i)
        if (sums[i] > stats->row_sum) stats->row_sum = sums[i];
}

// Columns col0 .. col0+nr-1 -> K x nr; missing columns are zero.
template <class T> inline void pack_b(const Isa& isa, int carrier, const Matrix& m, int64_t col0, int nr, const Cast& cast, T* dst, Stats* stats) {
    const int64_t count = m.cols - col0 < nr ? m.cols - col0 : nr;
    if (count < nr) memset(dst, 0, (size_t)(m.rows * nr) * sizeof(T));
    if (m.row_stride == 1 && m.col_stride != 1) {  // columns are contiguous: read along k, then transpose
        constexpr int64_t CHUNK = 128, WIDE = 64;
        T cols[WIDE * CHUNK];
        for (int64_t k = 0; k < m.rows; k += CHUNK) {
            const int64_t c = m.rows - k < CHUNK ? m.rows - k : CHUNK;
            for (int64_t j = 0; j < count; ++j) load_operand(isa, carrier, m, (col0 + j) * m.col_stride + k, 1, c, cast, (char*)(cols + j * CHUNK));
            for (int64_t q = 0; q < c; ++q)
                for (int64_t j = 0; j < count; ++j) dst[(k + q) * nr + j] = cols[j * CHUNK + q];
        }
    } else {
        const Cast none = {};
        const bool late = (cast.flags & PRESENT) && m.dtype != F64;  // round the whole panel in one call
        for (int64_t k = 0; k < m.rows; ++k)
            load_operand(isa, carrier, m, k * m.row_stride + col0 * m.col_stride, m.col_stride, count, late ? none : cast, (char*)(dst + k * nr));
        if (late) isa.round(carrier, dst, m.rows * nr, cast, 0, 0, 0);
    }
    isa.stats(carrier, dst, m.rows * nr, stats);
}

inline void merge(Stats* into, const Stats& s) {
    if (s.max_abs > into->max_abs) into->max_abs = s.max_abs;
    if (s.row_sum > into->row_sum) into->row_sum = s.row_sum;
    if (s.lsb < into->lsb) into->lsb = s.lsb;
    if (s.width > into->width) into->width = s.width;
    into->non_finite |= s.non_finite;
}

}  // namespace gemmsim
