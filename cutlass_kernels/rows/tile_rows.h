// A tile of rows: access to its elements, sequential or parallel, and sums in a stated order.
#pragma once
#include "gemmsim/device/block.h"
#include "gemmsim/device/storage.h"
#include "rows/reduce.h"
#include "rows/tile_steps.h"

namespace gemmsim::rows {

// Results per row, shared by all threads of the block.
struct TileShared {
    double top[TILE_THREADS], total[TILE_THREADS], other[TILE_THREADS], part[TILE_PARTS];
};

template <TileConfig K> struct Tile {
    const TileArgs& a;
    const Steps<K> steps;
    const uint32_t tid;
    const int64_t first;  // first row
    const int live;       // number of rows
    TileShared& shared;

    GEMMSIM_HD Tile(const TileArgs& args, uint32_t thread, uint64_t block)
        : a(args), steps{args.seed}, tid(thread), first((int64_t)block * args.tile),
          live((int)(args.rows - first < args.tile ? args.rows - first : args.tile)), shared(*(TileShared*)shared_memory()) {}

    template <int I> GEMMSIM_HD double input(int64_t i) const {
        return load_value<K.in[I], double>(((const typename Storage<K.in[I]>::Word*)a.in[I])[i]);
    }
    // Converts to 16 bits through float, because rows of such tensors are computed in float.
    template <DType D> static GEMMSIM_HD void put(void* to, int64_t i, double x) {
        if constexpr (D == F64) ((double*)to)[i] = store_value<F64>(x);
        else ((typename Storage<D>::Word*)to)[i] = store_value<D>((float)x);
    }
    template <int O> GEMMSIM_HD void output(int64_t i, double x) const { put<K.out[O]>(a.out[O], i, x); }

    // `index` is the element's offset from the tensor's start; `at` is the index of its random bits. Additions that combine partial
    // sums draw after the elements of their row.
    GEMMSIM_HD int64_t index(int64_t j, int64_t k) const { return (first + j) * a.cols + k; }
    GEMMSIM_HD uint64_t at(int64_t j, int64_t k) const {
        return (uint64_t)(first + j) * (uint64_t)(a.cols + (K.order > 1 ? K.order : 0)) + (uint64_t)k;
    }

    // Calls body(j, k) for all elements of the tile. Neighbouring threads take neighbouring elements.
    template <class Body> GEMMSIM_HD void each(const Body& body) const {
        const uint32_t cols = a.cols > TILE_THREADS ? TILE_THREADS + 1 : (uint32_t)a.cols;
        const int64_t rows = TILE_THREADS / cols, rest = TILE_THREADS - rows * cols;
        int64_t j = tid / cols, k = tid - j * cols;
        GEMMSIM_NO_UNROLL while (j < live) {
            body(j, k);
            j += rows;
            k += rest;
            if (k >= a.cols) {
                k -= a.cols;
                ++j;
            }
        }
    }

    // Writes the negated largest element of each row to shared.top. A NaN stays NaN.
    GEMMSIM_HD void negated_maxima() const {
        const int lanes = TILE_THREADS / a.tile, j = (int)tid / lanes;
        if (j < live) {
            double m = input<0>(index(j, 0));
            for (int64_t k = (int)tid - j * lanes; k < a.cols; k += lanes) m = ScalarLanes::larger(input<0>(index(j, k)), m);
            shared.part[tid] = m;
        }
        block_sync();
        if ((int)tid < live) {
            double m = shared.part[tid * lanes];
            for (int i = 1; i < lanes; ++i) m = ScalarLanes::larger(shared.part[tid * lanes + i], m);
            shared.top[tid] = -m;
        }
        block_sync();
    }

    // Writes the sum of term(j, k) over k, in order K.order (reduce.h), to shared.total.
    template <int S, class Term> GEMMSIM_HD void sum(const Term& term) const {
        if constexpr (K.order <= 1) {
            if ((int)tid < live) {
                double s = 0.0;
                GEMMSIM_NO_UNROLL for (int64_t k = 0; k < a.cols; ++k) s = steps.template add<S>(s, term((int64_t)tid, k), at(tid, k));
                shared.total[tid] = s;
            }
        } else {
            parts<S>(term);
            combine<S>();
        }
        block_sync();
    }

    template <int S, class Term> GEMMSIM_HD void parts(const Term& term) const {
        GEMMSIM_NO_UNROLL for (int c = (int)tid; c < live * K.order; c += TILE_THREADS) {
            const int64_t j = c / K.order;
            double s = 0.0;
            GEMMSIM_NO_UNROLL for (int64_t k = c % K.order; k < a.cols; k += K.order) s = steps.template add<S>(s, term(j, k), at(j, k));
            shared.part[c] = s;
        }
        block_sync();
    }

    template <int S> GEMMSIM_HD void combine() const {
        constexpr int GROUP = K.order < WARP ? K.order : WARP, GROUPS = K.order / GROUP;
        GEMMSIM_NO_UNROLL for (int h = GROUP / 2; h > 0; h /= 2) {
            GEMMSIM_NO_UNROLL for (int c = (int)tid; c < live * GROUPS * h; c += TILE_THREADS) {
                const int i = c % h, g = c / h % GROUPS, j = c / h / GROUPS, number = g * (GROUP - 1) + GROUP - 2 * h + i;
                double* const p = shared.part + j * K.order + g * GROUP;
                p[i] = steps.template add<S>(p[i], p[i + h], at(j, a.cols + number));
            }
            block_sync();
        }
        if ((int)tid < live) {
            double s = shared.part[tid * K.order];
            GEMMSIM_NO_UNROLL for (int g = 1; g < GROUPS; ++g) s =
                steps.template add<S>(s, shared.part[tid * K.order + g * GROUP], at(tid, a.cols + GROUPS * (GROUP - 1) + g - 1));
            shared.total[tid] = s;
        }
    }
};

}  // namespace gemmsim::rows
