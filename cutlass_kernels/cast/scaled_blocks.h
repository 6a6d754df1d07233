// Scaled casts on CUDA of blocks that find their own scale: their largest magnitude, either itself or in e8m0 or e4m3. Blocks lie
// along the last dimension.
#pragma once
#include "cast/scaled.h"
#include "gemmsim/device/warp.h"

namespace gemmsim {

template <ScaledConfig K> struct ScaledBlocksKernel {
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    static constexpr bool REAL = K.rule == ScaledRule::BLOCK_REAL, CHECKED = K.grid.integer && K.grid.low == 0;
    static constexpr int N = K.vector, PACKS = 2;

    const ScaledLaunch& a;
    float tensor = 0;
    int32_t found = 0;

    GEMMSIM_HD explicit ScaledBlocksKernel(const ScaledLaunch& args) : a(args) {
        if constexpr (REAL) tensor = div_rn(*a.amax, mul_rn(K.grid.high, 448.0f));
    }

    GEMMSIM_HD ScaledFactors factors(uint32_t amax) {
        if (K.rule != ScaledRule::BLOCK_POWER && amax >= INFINITE) found |= AMAX_NOT_FINITE;
        if constexpr (K.rule == ScaledRule::BLOCK_POWER) return power_factors<K.grid>(amax);
        else if constexpr (REAL) return real_factors<K.grid>(amax, tensor);
        else return factors_of<K.grid>(from_bits<float>(amax));
    }
    GEMMSIM_HD Dst element(float x, const ScaledFactors& f) {
        if constexpr (CHECKED) found |= x < 0 ? NEGATIVE_INPUT : 0;
        if (REAL && tensor == 0) return store_value<K.dst>(x == x ? signed_as(0.0f, x) : quiet_nan<float>());
        return store_value<K.dst>(cast_scaled<K.grid, REAL, false>(x, f));
    }

    // Casts whole blocks that follow each other in memory. K.lanes neighbouring threads share a block, each with a pack of it. All
    // threads take part in the exchange.
    GEMMSIM_HD void whole(uint32_t tid, uint64_t block) {
        ScaledPack<Src, N> in[PACKS];
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * SCALED_THREADS + tid) * N;
            in[p] = ScaledPack<Src, N>{};
            if (first < a.count) in[p] = *(const ScaledPack<Src, N>*)((const Src*)a.src + first);
        }
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * SCALED_THREADS + tid) * N;
            float x[N];
            uint32_t most = 0;
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) {
                x[j] = load_value<K.src, float>(in[p].word[j]);
                const uint32_t u = to_bits(x[j]) & MAGNITUDE;
                most = u > most ? u : most;
            }
            const uint32_t amax = lanes_max<K.lanes>(tid, most);
            if (first >= a.count) continue;
            const ScaledFactors f = factors(amax);
            ScaledPack<Dst, N> out;
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) out.word[j] = element(x[j], f);
            *(ScaledPack<Dst, N>*)((Dst*)a.dst + first) = out;
        }
    }

    // Casts blocks of any length and strides. A team of a.team threads takes each block; a thread block has SCALED_THREADS / a.team
    // teams.
    GEMMSIM_HD void any(uint32_t tid, uint64_t block) {
        const int64_t teams = SCALED_THREADS / a.team, group = (int64_t)block * teams + tid / a.team, lane = tid % a.team;
        const int64_t n = a.size[a.dims - 1], cuts = (n + a.block - 1) / a.block;
        const bool live = group < a.groups;
        int64_t rest = live ? group / cuts : 0;
        const int64_t begin = live ? group % cuts * a.block : 0, end = !live ? 0 : begin + a.block < n ? begin + a.block : n;
        const Src* src = (const Src*)a.src;
        Dst* dst = (Dst*)a.dst;
        for (int d = a.dims - 2; d >= 0; --d) {
            const int64_t at = rest % a.size[d];
            rest /= a.size[d];
            src += at * a.src_stride[d];
            dst += at * a.dst_stride[d];
        }
        const int64_t from = a.src_stride[a.dims - 1], to = a.dst_stride[a.dims - 1];
        uint32_t most = 0;
        for (int64_t e = begin + lane; e < end; e += a.team) {
            const uint32_t u = to_bits(load_value<K.src, float>(src[e * from])) & MAGNITUDE;
            most = u > most ? u : most;
        }
        uint32_t* const shared = (uint32_t*)shared_memory();
        shared[tid] = most;
        for (int h = a.team / 2; h > 0; h /= 2) {
            block_sync();
            if (lane < h && shared[tid + h] > shared[tid]) shared[tid] = shared[tid + h];
        }
        block_sync();
        if (!live) return;
        const ScaledFactors f = factors(shared[tid - lane]);
        for (int64_t e = begin + lane; e < end; e += a.team) dst[e * to] = element(load_value<K.src, float>(src[e * from]), f);
    }
};

template <ScaledConfig K> GEMMSIM_HD void scaled_blocks_body(const ScaledLaunch& a, uint32_t tid, uint64_t block) {
    ScaledBlocksKernel<K> kernel(a);
    if constexpr (K.lanes != 0) kernel.whole(tid, block);
    else kernel.any(tid, block);
    report(a.status, kernel.found);
}

}  // namespace gemmsim
