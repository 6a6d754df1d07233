// This file sums products that a table gives for each pair of codes.
#pragma once
#include <string.h>
#include <vector>
#include "api.h"
#include "compiled_isas.h"
#include "product/kernel_choice.h"
#include "tiles/other/table_sums.h"

namespace gemmsim {

typedef uint16_t Code;

// A table in the carrier, and bounds of its values, NaN excluded.
template <class T> struct Table {
    std::vector<T> values;
    // The same values where T is double and all are floats; else empty.
    std::vector<float> narrow;
    int32_t rows, columns;
    Stats stats = EMPTY_STATS;

    Table(const Isa& isa, const Lookup& from) : values((size_t)from.rows * (size_t)from.columns), rows(from.rows), columns(from.columns) {
        for (size_t i = 0; i < values.size(); ++i) values[i] = (T)from.values[i];
        bool floats = sizeof(T) == 8;
        for (const T x : values) floats = floats && (x != x || (T)(float)x == x);
        if (floats) narrow.assign(values.begin(), values.end());
        std::vector<T> row((size_t)columns);
        for (int32_t x = 0; x + 1 < rows; ++x) {
            memcpy(row.data(), values.data() + (size_t)x * (size_t)columns, sizeof(T) * (size_t)(columns - 1));
            isa.stats(sizeof(T) == 4 ? 0 : 1, row.data(), columns - 1, &stats);
        }
    }

    // sums[j] = values[a[0]][b[0][j]] + values[a[1]][b[1][j]] + ..., in this order and from +0, by the carrier's
    // additions.
    void sum_up(const Code* a, const Code* b, int64_t k, int nr, T* sums) const {
        if (nr == 32) return sum<32>(a, b, k, sums);
        if (nr == 16) return sum<16>(a, b, k, sums);
        nr == 8 ? sum<8>(a, b, k, sums) : sum<4>(a, b, k, sums);
    }

    // terms[k][i][j] = values[a[i * a_row + k]][b[k][j]], with MR rows of nr columns. Rows that are not in use repeat
    // the last one.
    void look_up(const Code* a, int64_t a_row, int rows, const Code* b, int64_t k, int nr, T* terms) const {
        if (sizeof(T) == 8 && !narrow.empty()) look_up_from(narrow.data(), a, a_row, rows, b, k, nr, terms);
        else look_up_from(values.data(), a, a_row, rows, b, k, nr, terms);
    }

    // terms[k][j] = values[a[k]][b[k][j]]. Codes of b are read four at a time.
    void look_up(const Code* __restrict a, const Code* __restrict b, int64_t k, int nr, T* __restrict terms) const {
        for (int64_t i = 0; i < k; ++i)
            for (int j = 0; j < nr; j += 4) {
                if (sizeof(T) == 8 && !narrow.empty()) row<4>(narrow.data(), a[i], b + i * nr + j, terms + i * nr + j);
                else row<4>(values.data(), a[i], b + i * nr + j, terms + i * nr + j);
            }
    }

private:
    // Reads each code of b once for all rows.
    template <class V> void look_up_from(const V* from, const Code* a, int64_t a_row, int rows, const Code* b, int64_t k, int nr,
                                         T* __restrict terms) const {
        for (int64_t at = 0; at < k; ++at) {
            const V* of[MR];
            for (int i = 0; i < MR; ++i) of[i] = from + (size_t)a[(i < rows ? i : rows - 1) * a_row + at] * (size_t)columns;
            T* const t = terms + at * MR * nr;
            for (int j = 0; j < nr; j += 4) {
                uint64_t four;
                memcpy(&four, b + at * nr + j, sizeof four);
                const size_t w = four & 0xFFFF, x = four >> 16 & 0xFFFF, y = four >> 32 & 0xFFFF, z = four >> 48;
#pragma GCC unroll 8
                for (int i = 0; i < MR; ++i) {
                    T* const to = t + i * nr + j;
                    to[0] = (T)of[i][w];
                    to[1] = (T)of[i][x];
                    to[2] = (T)of[i][y];
                    to[3] = (T)of[i][z];
                }
            }
        }
    }
    // Where the float table exists, sums read it, because it takes half the cache.
    template <int NR> void sum(const Code* __restrict a, const Code* __restrict b, int64_t k, T* __restrict sums) const {
        T s[NR] = {};
        for (int64_t i = 0; i < k; ++i) {
            T t[NR];
            if (sizeof(T) == 8 && !narrow.empty()) row<NR>(narrow.data(), a[i], b + i * NR, t);
            else row<NR>(values.data(), a[i], b + i * NR, t);
            for (int j = 0; j < NR; ++j) s[j] += t[j];
        }
        memcpy(sums, s, sizeof s);
    }
    template <int NR, class V> void row(const V* from, Code x, const Code* b, T* t) const {
        const V* const of_x = from + (size_t)x * (size_t)columns;
        for (int j = 0; j < NR; j += 4) {
            uint64_t four;
            memcpy(&four, b + j, sizeof four);
            t[j] = (T)of_x[four & 0xFFFF];
            t[j + 1] = (T)of_x[four >> 16 & 0xFFFF];
            t[j + 2] = (T)of_x[four >> 32 & 0xFFFF];
            t[j + 3] = (T)of_x[four >> 48];
        }
    }
};

// The codes of one tile, in the order of the terms: rows of A and a panel of B.
template <class T> struct TileCodes {
    const Table<T>* table;
    const Code* a;
    int64_t a_row;
    const Code* b;
};

inline AddTermsFn add_terms(const Isa& isa) {
    (void)isa;  // where one version alone is compiled
    return GEMMSIM_VERSION(add_terms, isa.name);
}

}  // namespace gemmsim
