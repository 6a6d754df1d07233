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
    INL_MEMBER void make(const Tile& t, int row, uint32_t block, int site) {
        const uint64_t first = t.row0 + row;
        if (first >> 32 != (first + ROWS - 1) >> 32) {
            for (int i = 0; i < ROWS; ++i) one_row(t, first + i, block, site, w[i][0]);
            return;
        }
        philox_rows<C, NV, ROWS>(t.seed, first, t.col0, block, site, w[0][0], 4 * NV);
    }
    static __attribute__((noinline)) void one_row(const Tile& t, uint64_t row, uint32_t block, int site, typename C::VU* words) {
        philox_rows<C, NV, 1>(t.seed, row, t.col0, block, site, words, 4 * NV);
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
