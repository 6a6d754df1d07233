// This file packs an operand A that is read through index tables: the patches of a convolution, without a matrix of
// them in memory (implicit im2col).
#pragma once
#include "api.h"
#include "product/pack.h"

namespace gemmsim {

// Packs up to eight rows of `c` terms into a K x MR panel: elements at base + rows[i] + cols[k]. Missing rows are zero.
template <class U> inline void gather_rows(const U* base, const int64_t* rows, int64_t count, const int64_t* cols, int64_t c, U* dst) {
    bool consecutive = count == MR;
    for (int64_t i = 1; i < count; ++i) consecutive = consecutive && rows[i] == rows[0] + i;
    if (consecutive) {
        const U* const from = base + rows[0];
        for (int64_t k = 0; k < c; ++k) memcpy(dst + k * MR, from + cols[k], MR * sizeof(U));
        return;
    }
    if (count == MR) {
        for (int64_t k = 0; k < c; ++k)
            for (int64_t i = 0; i < MR; ++i) dst[k * MR + i] = base[rows[i] + cols[k]];
        return;
    }
    memset(dst, 0, (size_t)(c * MR) * sizeof(U));
    for (int64_t k = 0; k < c; ++k)
        for (int64_t i = 0; i < count; ++i) dst[k * MR + i] = base[rows[i] + cols[k]];
}

inline void gather_bits(const Matrix& m, const int64_t* rows, int64_t count, const int64_t* cols, int64_t c, void* dst) {
    const int64_t size = dtype_size(m.dtype);
    if (size == 4) gather_rows((const uint32_t*)m.data, rows, count, cols, c, (uint32_t*)dst);
    else if (size == 8) gather_rows((const uint64_t*)m.data, rows, count, cols, c, (uint64_t*)dst);
    else gather_rows((const uint16_t*)m.data, rows, count, cols, c, (uint16_t*)dst);
}

// Packs MR rows from row0 into K x MR, as pack_a does. The operand's values are already values of its format.
template <class T> inline void pack_gathered(const Isa& isa, int carrier, const Matrix& m, const Gather& g, int64_t row0, Positions at,
                                             T* dst, PanelStats& facts) {
    constexpr int64_t CHUNK = 256;
    alignas(64) uint64_t raw[CHUNK * MR];
    alignas(64) T panel[CHUNK * MR];
    const int64_t count = m.rows - row0 < MR ? m.rows - row0 : MR;
    int64_t rows[MR];
    for (int64_t i = 0; i < count; ++i) rows[i] = (row0 + i) / g.inner * g.a_outer + g.rows[(row0 + i) % g.inner];
    const bool as_is = sizeof(T) == (size_t)dtype_size(m.dtype);  // the carrier's own dtype
    for (int64_t k = 0; k < m.cols; k += CHUNK) {
        const int64_t c = m.cols - k < CHUNK ? m.cols - k : CHUNK;
        T* const to = at ? panel : dst + k * MR;
        gather_bits(m, rows, count, g.cols + k, c, as_is ? (void*)to : (void*)raw);
        if (!as_is) isa.load(carrier, raw, m.dtype, 1, c * MR, to);
        for (int64_t q = 0; at && q < c; ++q) memcpy(dst + at[k + q] * MR, panel + q * MR, MR * sizeof(T));
        facts.check(isa, carrier, to, c);
    }
}

}  // namespace gemmsim
