// Converts complete blocks that follow each other in memory. A few neighbouring threads share a block, each with 16 bytes of it (32
// of float64), and exchange magnitudes. Every address range is read once and written once.
#pragma once
#include "gemmsim/device/warp.h"
#include "mx/vector_io.h"

namespace gemmsim {

template <MxConfig K> struct WholeBlocks {
    static constexpr MxFormat F = K.format;
    static constexpr int BYTES = K.src == F64 || K.dst == F64 ? 8 : K.src == F32 || K.dst == F32 ? 4 : 2;
    static constexpr int N = BYTES == 2 ? 8 : 4;      // elements of a pack
    static constexpr int LANES = F.block / N;         // threads that share a block
    static constexpr int PACKS = BYTES == 8 ? 1 : 2;  // in flight for each thread: enough to cover memory's latency
    static_assert(F.block % N == 0 && LANES <= 32 && (LANES & (LANES - 1)) == 0);

    typedef TensorPack<K.src, N> In;
    typedef TensorPack<K.dst, N> Out;
    typedef Codes<K.packing, N> Packed;

    static GEMMSIM_HD void store(const MxArgs& a, uint64_t first, const Out& out) {
        *(Out*)((typename Storage<K.dst>::Word*)a.dst + first) = out;
    }

    static GEMMSIM_HD Packed encoded(const float (&x)[N], const BlockFacts& facts, const MxArgs& a) {
        if constexpr (is_plain<F>()) {
            if (facts.factor == facts.factor) {
                float v[N];
                GEMMSIM_UNROLL for (int j = 0; j < N; ++j) v[j] = mul_rn(x[j], facts.factor);
                return plain_codes<F, K.packing>(v);
            }
        }
        Packed codes{};
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) {
            const uint32_t code = is_plain<F>() ? (uint32_t)F.nan_code : block_element<F>(x[j], facts, a.log2_from);
            codes.word[j / Packed::GROUP] |= code << Packed::shift(j);
        }
        return codes;
    }

    static GEMMSIM_HD Out both(const float (&x)[N], const BlockFacts& facts, float back, const MxArgs& a) {
        float y[N];
        if constexpr (is_plain<F>()) {
            if (magnitude(back) < from_bits<float>(INFINITY_BITS)) {
                GEMMSIM_UNROLL for (int j = 0; j < N; ++j) y[j] = mul_rn(plain_value<F>(mul_rn(x[j], facts.factor)), back);
                return packed_numbers<K.dst>(y);
            }
        }
        constexpr bool only_nan = is_plain<F>() && !F.tensor_scale;
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) y[j] = only_nan ? quiet_nan<float>() : quantized<F>(x[j], facts, back, a.log2_from);
        return packed_values<K.dst>(y);
    }

    // All threads of a warp call this together, because they exchange magnitudes. In threads without work `first` lies past the
    // end.
    static GEMMSIM_HD void encode(const MxArgs& a, const In& in, uint64_t first, uint32_t tid, float second) {
        float x[N], most = 0;
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) x[j] = unpacked<K.src, N>(in, j);
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) most = larger(most, x[j]);
        const uint32_t amax = lanes_max<LANES>(tid, to_bits(most) & 0x7FFFFFFFu);
        if (first >= a.count) return;
        uint32_t scale;
        const BlockFacts facts = block_facts<F>(amax, second, a.log2_from, &scale);
        if constexpr (K.op == MxOp::ENCODE) {
            encoded(x, facts, a).write(a.codes + Packed::offset(first));
            if (tid % LANES == 0) a.scales[first / F.block] = (uint8_t)scale;
        } else {
            store(a, first, both(x, facts, decode_factor<F>(scale, second), a));
        }
    }

    static GEMMSIM_HD void decode(const MxArgs& a, const Packed& codes, uint32_t scale, uint64_t first, float second) {
        const float factor = decode_factor<F>(scale, second);
        float y[N];
        if (magnitude(factor) < from_bits<float>(INFINITY_BITS) && !any_special<F>(codes)) {
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) y[j] = mul_rn(top_element_value<F>(codes.top(j, F.bits)), factor);
            store(a, first, packed_numbers<K.dst>(y));
        } else {
            constexpr bool only_nan = !has_specials<F>() && !F.tensor_scale;
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) y[j] = only_nan ? quiet_nan<float>() : scaled_value<F>(codes.code(j), factor);
            store(a, first, packed_values<K.dst>(y));
        }
    }

    static GEMMSIM_HD void run(const MxArgs& a, uint32_t tid, uint64_t block) {
        const float second = F.tensor_scale ? second_scale(a) : 1.0f;
        In in[PACKS];
        Packed codes[PACKS];
        uint32_t scale[PACKS];
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * MX_THREADS + tid) * N;
            if constexpr (K.op == MxOp::DECODE) {
                if (first >= a.count) continue;
                codes[p] = Packed::read(a.codes + Packed::offset(first));
                scale[p] = a.scales[first / F.block];
            } else {
                in[p] = In{};
                if (first < a.count) in[p] = *(const In*)((const typename Storage<K.src>::Word*)a.src + first);
            }
        }
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * MX_THREADS + tid) * N;
            if constexpr (K.op != MxOp::DECODE) encode(a, in[p], first, tid, second);
            else if (first < a.count) decode(a, codes[p], scale[p], first, second);
        }
    }
};

}  // namespace gemmsim
