// Scaled casts on CUDA with given scales: one number, one for each element along some dimensions, a range, or none.
#pragma once
#include "cast/scaled_grid.h"

namespace gemmsim {

constexpr int SCALED_THREADS = 256, SCALED_DIMS = 16;
// How many numbers of amax and second a pack of elements takes: the tensor's one, one per pack, or one per element.
enum class Spreading : int32_t { ONE = 0, PACKS = 1, ELEMENTS = 2 };

// What is known when the kernel is compiled.
struct ScaledConfig {
    DType src, dst;
    ScaledRule rule;
    ScaledGrid grid;
    bool has_amax, has_second, emit_integers;  // second: bias, or the upper ends of a range
    Spreading spreading;
    int32_t vector;  // elements a thread reads at once, from contiguous and aligned tensors; 0: any strides
    int32_t lanes;   // of dynamic blocks: threads that share one; 0: any blocks and strides
};

// What is known when the kernel is launched. gemmsim/backends/cuda/casts/scaled_casts.py mirrors this record. In contiguous
// tensors, element i takes number i / inner % period of amax and of second. In others, strides of 0 broadcast the numbers.
struct ScaledLaunch {
    const void* src;
    void* dst;
    const float *amax, *second;
    int32_t* status;  // union of ScaledStatus bits; null: not requested
    uint64_t count;
    int64_t amax_inner, amax_period, second_inner, second_period;
    int64_t block, groups;  // of dynamic blocks: length and number
    float steps;            // AFFINE: 2^bits - 1
    int32_t dims, team, reserved;
    int64_t size[SCALED_DIMS], src_stride[SCALED_DIMS], dst_stride[SCALED_DIMS], amax_stride[SCALED_DIMS], second_stride[SCALED_DIMS];
};

GEMMSIM_HD void report(int32_t* status, int32_t what) {
    if (!status || !what) return;
#if defined(__CUDA_ARCH__)
    atomicOr(status, what);
#else
    *status |= what;
#endif
}

template <class Word, int N> struct alignas(N * sizeof(Word) < 16 ? N * sizeof(Word) : 16) ScaledPack {
    Word word[N];
};

// The index in a broadcast tensor that belongs to element i.
GEMMSIM_HD int64_t spread(int64_t inner, int64_t period, uint64_t i, uint64_t count) {
    if (period == 1) return 0;
    if (count <= 0xFFFFFFFFull) return (uint32_t)i / (uint32_t)inner % (uint32_t)period;
    return (int64_t)(i / (uint64_t)inner % (uint64_t)period);
}

template <ScaledConfig K> struct ScaledKernel {
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    static constexpr bool AFFINE = K.rule == ScaledRule::AFFINE, CHECKED = K.grid.integer && K.grid.low == 0 && !AFFINE;
    // Packs in flight for each thread: enough to cover memory's latency, but one where scales are long code.
    static constexpr int PACKS = K.vector != 0 && K.spreading == Spreading::ELEMENTS ? 1 : 4;

    const ScaledLaunch& a;
    ScaledFactors factors{1, 1};
    AffineStep step{1, 0};
    bool negative = false;

    GEMMSIM_HD explicit ScaledKernel(const ScaledLaunch& args) : a(args) {}

    GEMMSIM_HD void take(float amax, float second) {
        if constexpr (AFFINE) step = affine_step<K.grid>(amax, second, a.steps);
        else if constexpr (K.has_amax) factors = factors_of<K.grid>(amax);
    }
    GEMMSIM_HD Dst element(Src w, float second) {
        float x = load_value<K.src, float>(w);
        if constexpr (AFFINE) return store_value<K.dst>(cast_affine<K.grid>(x, step));
        if constexpr (K.has_second) x = add_rn(x, -second);
        if constexpr (CHECKED) negative = negative || x < 0;
        float y = cast_scaled<K.grid, false, (K.emit_integers || !K.has_amax)>(x, factors);
        if constexpr (K.has_second) y = add_rn(y, second);
        return store_value<K.dst>(y);
    }

    // Sets the scale of element i and returns its second number.
    GEMMSIM_HD float scale_for(uint64_t i) {
        const float low = K.has_amax ? a.amax[spread(a.amax_inner, a.amax_period, i, a.count)] : 0;
        const float second = K.has_second ? a.second[spread(a.second_inner, a.second_period, i, a.count)] : 0;
        take(low, second);
        return second;
    }

    template <int N> GEMMSIM_HD ScaledPack<Dst, N> whole(const ScaledPack<Src, N>& in, uint64_t first, float second) {
        ScaledPack<Dst, N> out;
        if constexpr (K.spreading == Spreading::PACKS) second = scale_for(first);
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) {
            if constexpr (K.spreading == Spreading::ELEMENTS) second = scale_for(first + j);
            out.word[j] = element(in.word[j], second);
        }
        return out;
    }

    GEMMSIM_HD void contiguous(uint32_t tid, uint64_t block) {
        constexpr int N = K.vector;
        ScaledPack<Src, N> in[PACKS];
        const float second = K.spreading == Spreading::ONE ? scale_for(0) : 0;
        const Src* src = (const Src*)a.src;
        Dst* dst = (Dst*)a.dst;
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {  // all reads before the first write: `out` may be `x`
            const uint64_t first = ((block * PACKS + p) * SCALED_THREADS + tid) * N;
            if (first + N <= a.count) in[p] = *(const ScaledPack<Src, N>*)(src + first);
        }
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * SCALED_THREADS + tid) * N;
            if (first + N <= a.count) *(ScaledPack<Dst, N>*)(dst + first) = whole<N>(in[p], first, second);
        }
        const uint64_t rest = a.count % N, last = a.count - rest + tid;  // the elements that no pack contains
        if (block == 0 && tid < rest) {
            const ScaledPack<Dst, 1> out = whole<1>({{src[last]}}, last, second);
            dst[last] = out.word[0];
        }
    }

    GEMMSIM_HD void strided(uint32_t tid, uint64_t block) {
        GEMMSIM_NO_UNROLL for (int p = 0; p < PACKS; ++p) {
            uint64_t i = (block * PACKS + p) * SCALED_THREADS + tid;
            if (i >= a.count) return;
            int64_t s = 0, d = 0, m = 0, b = 0;
            for (int k = a.dims - 1; k >= 0; --k) {
                const uint64_t size = (uint64_t)a.size[k], rest = a.count <= 0xFFFFFFFFull ? (uint32_t)i / (uint32_t)size : i / size;
                const int64_t at = (int64_t)(i - rest * size);
                s += at * a.src_stride[k];
                d += at * a.dst_stride[k];
                m += at * a.amax_stride[k];
                b += at * a.second_stride[k];
                i = rest;
            }
            const float second = K.has_second ? a.second[b] : 0;
            take(K.has_amax ? a.amax[m] : 0, second);
            ((Dst*)a.dst)[d] = element(((const Src*)a.src)[s], second);
        }
    }
};

// Thread `tid` of block `block`. A block casts SCALED_THREADS * ScaledKernel<K>::PACKS * max(1, K.vector) elements.
template <ScaledConfig K> GEMMSIM_HD void scaled_body(const ScaledLaunch& a, uint32_t tid, uint64_t block) {
    ScaledKernel<K> kernel(a);
    if constexpr (K.vector != 0) kernel.contiguous(tid, block);
    else kernel.strided(tid, block);
    if (kernel.negative) report(a.status, NEGATIVE_INPUT);
}

}  // namespace gemmsim
