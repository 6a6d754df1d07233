// Random bits of the steps of a tile's rows.
#pragma once
#include "tile.h"
#include "tiles/philox_vec.h"

namespace gemmsim::NS {

enum { NV = 2 };  // vectors per tile row

enum Place { LOW_HALF, HIGH_HALF, WORD };  // of a draw in a Philox call's words

// The draws of `ROWS` rows for one Philox call's worth of k, kept in the first-level cache.
template <class C, int ROWS> struct Draws {
    typename C::VU w[ROWS][NV][4];
    typedef PhiloxColumns<C, NV> Columns;
    static INL_MEMBER uint32_t last_word(uint64_t row, int site) { return (uint32_t)site | ((uint32_t)(row >> 32) << 8); }
    INL_MEMBER void make(const Tile& t, int row, uint32_t block, int site) {
        const uint64_t first = t.row0 + row;
        if (first >> 32 != (first + ROWS - 1) >> 32) return row_by_row(t, first, block, site, ROWS);
        Columns(t.seed, t.col0, last_word(first, site)).words(first, block, w[0][0], 4 * NV, ROWS);
    }
    // The same of the tile's first rows with what is made once: `columns` of its first row. A function of its own, whose constants do not
    // take the caller's registers.
    __attribute__((noinline)) void make(const Columns& columns, const Tile& t, uint32_t block, int site, int rows) {
        if (t.row0 >> 32 != (t.row0 + rows - 1) >> 32) return row_by_row(t, t.row0, block, site, rows);
        columns.words(t.row0, block, w[0][0], 4 * NV, rows);
    }
    __attribute__((noinline)) void row_by_row(const Tile& t, uint64_t first, uint32_t block, int site, int rows) {
        for (int i = 0; i < rows; ++i) Columns(t.seed, t.col0, last_word(first + i, site)).words(first + i, block, w[i][0], 4 * NV, 1);
    }
    // The highest `r` bits of draw kk.
    template <Place PLACE> INL_MEMBER typename C::VU at(int i, int j, int kk, int r) const {
        if (PLACE == WORD) return w[i][j][kk] >> (32 - r);
        const typename C::VU x = w[i][j][kk >> 1];
        return PLACE == HIGH_HALF ? (x & 0xFFFFFFFFu) >> (32 - r) : (x & 0xFFFFu) >> (16 - r);
    }
    INL_MEMBER typename C::VU get(int i, int j, int kk, int r) const {
        if (r > 16) return at<WORD>(i, j, kk, r);
        return kk & 1 ? at<HIGH_HALF>(i, j, kk, r) : at<LOW_HALF>(i, j, kk, r);
    }
};

}  // namespace gemmsim::NS
