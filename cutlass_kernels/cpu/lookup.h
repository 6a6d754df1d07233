// Tables of products of codes.
#pragma once
#include <string.h>
#include <vector>
#include "api.h"
#include "plan.h"

namespace gemmsim {

typedef uint16_t Code;

// A table in the carrier, and what its values (without those of NaN) are like.
template <class T> struct Table {
    std::vector<T> values;
    int32_t rows, columns;
    Stats stats = EMPTY_STATS;

    Table(const Isa& isa, const Lookup& from) : values((size_t)from.rows * (size_t)from.columns), rows(from.rows), columns(from.columns) {
        for (size_t i = 0; i < values.size(); ++i) values[i] = (T)from.values[i];
        std::vector<T> row((size_t)columns);
        for (int32_t x = 0; x + 1 < rows; ++x) {
            memcpy(row.data(), values.data() + (size_t)x * (size_t)columns, sizeof(T) * (size_t)(columns - 1));
            isa.stats(sizeof(T) == 4 ? 0 : 1, row.data(), columns - 1, &stats);
        }
    }

    // terms[k][j] = values[a[k]][b[k][j]]; codes of b are read four at a time.
    void look_up(const Code* __restrict a, const Code* __restrict b, int64_t k, int nr, T* __restrict terms) const {
        for (int64_t i = 0; i < k; ++i) {
            const T* const row = values.data() + (size_t)a[i] * (size_t)columns;
            for (int j = 0; j < nr; j += 4) {
                uint64_t four;
                memcpy(&four, b + i * nr + j, sizeof four);
                T* const to = terms + i * nr + j;
                to[0] = row[four & 0xFFFF];
                to[1] = row[four >> 16 & 0xFFFF];
                to[2] = row[four >> 32 & 0xFFFF];
                to[3] = row[four >> 48];
            }
        }
    }
};

}  // namespace gemmsim
