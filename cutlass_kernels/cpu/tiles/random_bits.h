// Makes the random bits of the steps of a tile's rows (docs/reference/random_bits.md).
#pragma once
#include "isa_table.h"
#include "tiles/register_block.h"
#include "tiles/philox_vec.h"

namespace gemmsim::NS {

enum Place { LOW_HALF, HIGH_HALF, WORD };  // the place of a draw in the words of a Philox call

// The draws of ROWS rows for the terms that one Philox call serves, in the first-level cache. A draw is the random bits of one rounding.
template <class C, int ROWS> struct Draws {
    typename C::VU w[ROWS][NV][4];
    // Makes the draws of `rows` rows of the tile from `row` on. It is not inlined, so that its constants do not take the caller's CPU
    // registers. The first call computes what depends on the tile's columns and on the stream alone.
    __attribute__((noinline)) void make(const Tile& t, int row, uint32_t block, int site, int rows = ROWS) {
        const uint64_t first = t.row0 + row;
        if (first >> 32 != (first + rows - 1) >> 32) {
            for (int i = 0; i < rows; ++i) make(t, row + i, block, site, 1, w[i][0]);
            return;
        }
        make(t, row, block, site, rows, w[0][0]);
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

private:
    PhiloxColumns<C, NV> columns;
    INL_MEMBER void make(const Tile& t, int row, uint32_t block, int site, int rows, typename C::VU* words) {
        const uint64_t first = t.row0 + row;
        columns.make(t.seed, t.col0, (uint32_t)site | ((uint32_t)(first >> 32) << 8));
        columns.words(first, block, words, 4 * NV, rows);
    }
};

}  // namespace gemmsim::NS
