// The addend C of a product: loads it tile by tile and gathers facts about it. Products without an addend have a null `data`.
#pragma once
#include <string.h>
#include "product/pack.h"

namespace gemmsim {

struct Addend {
    const char* data;
    int32_t dtype;
    int64_t row, col;  // strides in elements

    // Loads a tile of `rows` by `cols` values into the carrier. The rest of the tile becomes zero.
    template <class T> void load(const Isa& isa, int64_t row0, int rows, int64_t col0, int cols, int nr, T* dst) const {
        memset(dst, 0, sizeof(T) * (size_t)(MR * nr));
        for (int i = 0; i < rows; ++i)
            isa.load(sizeof(T) == 4 ? 0 : 1, data + ((row0 + i) * row + col0 * col) * dtype_size(dtype), dtype, col, cols, dst + i * nr);
    }

    // Facts about a block of C for kernel_choice.h.
    template <class T> Stats stats(const Isa& isa, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int nr) const {
        Stats s = EMPTY_STATS;
        T x[MR * 64];
        for (int64_t i = 0; i < rows; i += MR)
            for (int64_t j = 0; j < cols; j += nr) {
                load(isa, row0 + i, (int)(rows - i < MR ? rows - i : MR), col0 + j, (int)(cols - j < nr ? cols - j : nr), nr, x);
                isa.stats(sizeof(T) == 4 ? 0 : 1, x, MR * nr, &s);
            }
        return s;
    }
};

}  // namespace gemmsim
