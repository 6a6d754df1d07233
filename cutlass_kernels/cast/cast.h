// Casts tensors element by element: out[i] = to_dtype(cast(src[i])), for any strides and any two float dtypes. Random bits belong
// to the logical index of an element (docs/reference/random_bits.md), so no tiling changes them.
#pragma once
#include "gemmsim/device/draws.h"
#include "gemmsim/device/round_grid.h"

namespace gemmsim {

constexpr int CAST_THREADS = 256, CAST_DIMS = 16;

// What is known when the kernel is compiled.
struct CastConfig {
    DType src, dst;
    Cast cast;
    int32_t vector;  // elements a thread reads at once, from contiguous and aligned tensors; 0: any strides
};

// What is known when the kernel is launched. gemmsim/backends/cuda/casts/cast.py mirrors this record.
struct CastArgs {
    const void* src;
    void* dst;
    uint64_t count, seed, start;  // random bits are those of the elements from `start` on
    int32_t site, dims;
    int64_t size[CAST_DIMS], src_stride[CAST_DIMS], dst_stride[CAST_DIMS], index_stride[CAST_DIMS];
};

template <class Word, int N> struct alignas(N * sizeof(Word) < 16 ? N * sizeof(Word) : 16) Pack {
    Word word[N];
};

template <CastConfig K> struct CastKernel {
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    typedef typename Storage<K.src == F64 ? F64 : F32>::Word Value;
    static constexpr bool STOCHASTIC = K.cast.mode >= SR;
    static constexpr int DRAWS = K.cast.rbits <= 16 ? 8 : 4;  // draws of one Philox call
    // Packs in flight for each thread: enough to cover memory latency, but few where a rounding is long code.
    static constexpr bool NARROW = sizeof(Src) == 2 && sizeof(Dst) == 2;
    static constexpr int PACKS = K.vector == 0 ? 4 : element_needs_exact(K.cast) || (STOCHASTIC && !(NARROW && DRAWS == 8)) ? 1 : 4;
    // Whether draws are 16-bit halves of words and can be used in place. The first r bits of a half count; the draw in the low half
    // is used without a shift.
    static constexpr bool IN_PLACE = DRAWS == 8 && K.src != F64 && stochastic_rounds<float>(K.cast) &&
                                     stochastic_rounds<float>(K.cast, K.cast.mode == SRB && K.cast.rbits == 16 ? 17 : 16);

    static GEMMSIM_HD Dst element(Src w, uint32_t R) {
        return store_value<K.dst>(round_element<K.cast, K.dst == F64>(load_value<K.src, Value>(w), R));
    }

    // FEW: only a few threads execute this code.
    template <bool FEW> static GEMMSIM_HD Dst drawn(Src w, const CastArgs& a, uint64_t index) {
        uint32_t R = 0;
        if constexpr (STOCHASTIC && FEW) R = draw_element_shortly<K.cast.rbits>(a.seed, a.start + index, a.site);
        else if constexpr (STOCHASTIC) R = draw_element(a.seed, a.start + index, a.site, K.cast.rbits);
        return element(w, R);
    }

    // Rounds element j of those that the generator's call x serves.
    static GEMMSIM_HD Rounded<float> in_place(Src w, const Words4& x, int j) {
        typedef StochasticCast<float, K.cast> Round;
        constexpr int r = K.cast.rbits;
        const float value = load_value<K.src, float>(w);
        const uint32_t word = x.w[j / 2];
        if (j % 2) return Round::template rounded<r>(value, Round::template draw<r>(word >> (32 - r)));
        return Round::template rounded<16>(value, Round::template draw<16>(word & (0xFFFFu >> (16 - r) << (16 - r))));
    }

    // Rounds all of these elements, in pairs.
    template <int N> static GEMMSIM_HD void all_in_place(const Pack<Src, N>& in, const Words4& x, int first, Pack<Dst, N>& out) {
        GEMMSIM_UNROLL for (int j = 0; j < DRAWS; j += 2) {
            const Rounded<float> p = in_place(in.word[first + j], x, j), q = in_place(in.word[first + j + 1], x, j + 1);
            if constexpr (sizeof(Dst) == 2) {
                constexpr uint32_t none = K.dst == F16 ? 0x7E00u : 0x7FC0u;
                uint32_t both = pair_of<K.dst>(p.value, q.value);
                if (p.nan) both = (both & 0xFFFF0000u) | none;
                if (q.nan) both = (both & 0xFFFFu) | none << 16;
                out.word[first + j] = (Dst)both;
                out.word[first + j + 1] = (Dst)(both >> 16);
            } else {
                out.word[first + j] = p.nan ? quiet_nan<Dst>() : (Dst)p.value;
                out.word[first + j + 1] = q.nan ? quiet_nan<Dst>() : (Dst)q.value;
            }
        }
    }

    // Rounds a pack whose first element has logical index `first`, a multiple of the pack's length.
    template <int N> static GEMMSIM_HD Pack<Dst, N> whole(const Pack<Src, N>& in, const CastArgs& a, uint64_t first) {
        Pack<Dst, N> out;
        if constexpr (STOCHASTIC) {
            static_assert(N % DRAWS == 0);
            GEMMSIM_UNROLL for (int g = 0; g < N; g += DRAWS) {
                const uint64_t call = (a.start + first + g) / DRAWS;
                const Words4 x =
                    philox((uint32_t)a.seed, (uint32_t)(a.seed >> 32), (uint32_t)call, (uint32_t)(call >> 32), 0u, (uint32_t)a.site);
                if constexpr (IN_PLACE) {
                    all_in_place<N>(in, x, g, out);
                } else {
                    GEMMSIM_UNROLL for (int j = 0; j < DRAWS; ++j) out.word[g + j] = element(in.word[g + j], pick(x, j, K.cast.rbits));
                }
            }
        } else {
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) out.word[j] = element(in.word[j], 0);
        }
        return out;
    }

    static GEMMSIM_HD void contiguous(const CastArgs& a, uint32_t tid, uint64_t block) {
        constexpr int N = K.vector;
        Pack<Src, N> in[PACKS];
        const Src* src = (const Src*)a.src;
        Dst* dst = (Dst*)a.dst;
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {  // all reads before the first write: `out` may be `x`
            const uint64_t first = ((block * PACKS + p) * CAST_THREADS + tid) * N;
            if (first + N <= a.count) in[p] = *(const Pack<Src, N>*)(src + first);
        }
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * CAST_THREADS + tid) * N;
            if (first + N <= a.count) *(Pack<Dst, N>*)(dst + first) = whole<N>(in[p], a, first);
        }
        const uint64_t rest = a.count % N, last = a.count - rest + tid;  // the elements that no pack contains
        if (block == 0 && tid < rest) dst[last] = drawn<true>(src[last], a, last);
    }

    // Casts element i, counted in the order of a.size. Index has 32 bits where they suffice, because division is slow.
    template <class Index> static GEMMSIM_HD void strided_element(const CastArgs& a, Index i) {
        int64_t s = 0, d = 0, logical = 0;
        for (int k = a.dims - 1; k >= 0; --k) {
            const Index size = (Index)a.size[k], rest = i / size;
            const int64_t at = (int64_t)(i - rest * size);
            s += at * a.src_stride[k];
            d += at * a.dst_stride[k];
            logical += at * a.index_stride[k];
            i = rest;
        }
        ((Dst*)a.dst)[d] = drawn<false>(((const Src*)a.src)[s], a, (uint64_t)logical);
    }

    static GEMMSIM_HD void strided(const CastArgs& a, uint32_t tid, uint64_t block) {
        const bool narrow = a.count <= 0xFFFFFFFFull;
        GEMMSIM_NO_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t i = (block * PACKS + p) * CAST_THREADS + tid;
            if (i >= a.count) return;
            if (narrow) strided_element<uint32_t>(a, (uint32_t)i);
            else strided_element<uint64_t>(a, i);
        }
    }
};

// Thread `tid` of block `block`. A block casts CAST_THREADS * CastKernel<K>::PACKS * max(1, K.vector) elements.
template <CastConfig K> GEMMSIM_HD void cast_body(const CastArgs& a, uint32_t tid, uint64_t block) {
    if constexpr (K.vector != 0) CastKernel<K>::contiguous(a, tid, block);
    else CastKernel<K>::strided(a, tid, block);
}

}  // namespace gemmsim
