// Random bits of the steps of a tile's rows.
#pragma once
#include "tile.h"
#include "tiles/philox_vec.h"

namespace gemmsim::NS {

enum { NV = 2 };  // vectors per tile row

// The draws of `ROWS` rows for one Philox call's worth of k, kept in the first-level cache.
template <class C, int ROWS> struct Draws {
    typename C::VU w[ROWS][NV][4];
    INL_MEMBER void make(const Tile& t, int row, uint32_t block, int site) {
        for (int i = 0; i < ROWS; ++i) {
            const uint64_t r = t.row0 + row + i;
            philox_columns<C, NV>(t.seed, r, t.col0, block, site, w[i]);
        }
    }
    INL_MEMBER typename C::VU get(int i, int j, int kk, int r) const {
        typedef typename C::VU VU;
        if (r <= 16) {
            const VU x = w[i][j][kk >> 1];
            return (kk & 1 ? x >> 16 : x & 0xFFFFu) >> (16 - r);
        }
        return w[i][j][kk] >> (32 - r);
    }
};

}  // namespace gemmsim::NS
