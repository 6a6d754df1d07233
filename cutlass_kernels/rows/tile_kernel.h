// The body of every row kernel, for thread `tid` of block `block`.
#pragma once
#include "rows/tile_norm.h"
#include "rows/tile_softmax.h"

namespace gemmsim::rows {

template <TileConfig K> GEMMSIM_HD double mapped(const Steps<K>& s, double a, double b, uint64_t at) {
    constexpr int F = K.function;
    if constexpr (F == ADD) return s.template add<0>(a, b, at);
    else if constexpr (F == SUB) return s.template add<0>(a, -b, at);
    else if constexpr (F == MUL) return s.template mul<0>(a, b, at);
    else if constexpr (F == DIV) return s.template div<0>(a, b, at);
    else if constexpr (F == SQRT) return s.template root<0>(a, at);
    else if constexpr (F == MAX) return s.template round<0>(ScalarLanes::larger(a, b), at);
    else if constexpr (F == COPY) return s.template round<0>(a, at);
    else return s.template function<F, 0>(a, b, at);
}

// Maps TILE_THREADS * TILE_MAP_PASSES elements per block.
template <TileConfig K> GEMMSIM_HD void map_elements(const Tile<K>& t, uint64_t block) {
    GEMMSIM_NO_UNROLL for (int p = 0; p < TILE_MAP_PASSES; ++p) {
        const int64_t i = (int64_t)((block * TILE_MAP_PASSES + p) * TILE_THREADS + t.tid);
        if (i >= t.a.rows) return;
        double b = 1.0;
        if constexpr (K.second) b = t.template input<1>(i);
        t.template output<0>(i, mapped<K>(t.steps, t.template input<0>(i), b, (uint64_t)i));
    }
}

template <TileConfig K> GEMMSIM_HD void tile_body(const TileArgs& a, uint32_t tid, uint64_t block) {
    const Tile<K> t(a, tid, block);
    if constexpr (K.op == TILE_MAP) map_elements<K>(t, block);
    else if constexpr (K.op == TILE_SOFTMAX) tile_softmax<K>(t);
    else if constexpr (K.op == TILE_LOG_SOFTMAX) tile_log_softmax<K>(t);
    else if constexpr (K.op == TILE_SOFTMAX_GRAD) tile_softmax_grad<K>(t);
    else if constexpr (K.op == TILE_NORM) tile_norm<K>(t);
    else if constexpr (K.op == TILE_NORM_GRAD) tile_norm_grad<K>(t);
    else {
        t.template sum<0>([&](int64_t j, int64_t k) { return t.template input<0>(t.index(j, k)); });
        if ((int)tid < t.live) t.template output<0>(t.first + tid, t.shared.total[tid]);
    }
}

}  // namespace gemmsim::rows
