// Conversions of complete blocks that follow each other in memory: a few neighbouring threads share a block, each with 16
// bytes of it (32 of float64), and exchange magnitudes; every address range is read once and written once.
#pragma once
#include "gemmsim/device/lanes.h"
#include "mx/config.h"

namespace gemmsim {

template <class Word, int N> struct alignas(N * sizeof(Word) < 16 ? N * sizeof(Word) : 16) MxPack {
    Word word[N];
};

template <MxConfig K> struct WholeBlocks {
    static constexpr MxFormat F = K.format;
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    static constexpr int BYTES = sizeof(Src) > sizeof(Dst) ? sizeof(Src) : sizeof(Dst);
    static constexpr int N = BYTES == 2 ? 8 : 4;           // elements of a pack
    static constexpr int LANES = F.block / N;              // threads that share a block
    static constexpr int PACKS = BYTES == 8 ? 1 : 2;       // in flight for each thread: enough to cover memory's latency
    static constexpr int CODE_BITS = N * code_width(K.packing);
    static_assert(K.layout != MxLayout::WHOLE || (F.block % N == 0 && LANES <= 32 && (LANES & (LANES - 1)) == 0));

    typedef MxPack<Src, N> In;
    typedef MxPack<Dst, N> Out;

    // Packed codes of a pack, of which CODE_BITS / 8 bytes lie at `at`.
    static GEMMSIM_HD uint64_t read_codes(const uint8_t* at) {
        if constexpr (CODE_BITS == 64) {
            const MxPack<uint32_t, 2> two = *(const MxPack<uint32_t, 2>*)at;
            return two.word[0] | (uint64_t)two.word[1] << 32;
        } else if constexpr (CODE_BITS == 32) {
            return *(const uint32_t*)at;
        } else if constexpr (CODE_BITS == 16) {
            return *(const uint16_t*)at;
        } else if constexpr (CODE_BITS == 48) {
            const uint16_t* half = (const uint16_t*)at;
            return half[0] | (uint64_t)half[1] << 16 | (uint64_t)half[2] << 32;
        } else {
            return at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16;
        }
    }

    static GEMMSIM_HD void write_codes(uint8_t* at, uint64_t word) {
        if constexpr (CODE_BITS == 64) {
            *(MxPack<uint32_t, 2>*)at = MxPack<uint32_t, 2>{{(uint32_t)word, (uint32_t)(word >> 32)}};
        } else if constexpr (CODE_BITS == 32) {
            *(uint32_t*)at = (uint32_t)word;
        } else if constexpr (CODE_BITS == 16) {
            *(uint16_t*)at = (uint16_t)word;
        } else if constexpr (CODE_BITS == 48) {
            uint16_t* half = (uint16_t*)at;
            for (int j = 0; j < 3; ++j) half[j] = (uint16_t)(word >> (16 * j));
        } else {
            for (int j = 0; j < 3; ++j) at[j] = (uint8_t)(word >> (8 * j));
        }
    }

    // All threads of a warp come here together: they exchange magnitudes. `first` lies past the end in threads without work.
    static GEMMSIM_HD void encode(const MxArgs& a, const In& in, uint64_t first, uint32_t tid, float second) {
        float x[N], most = 0;
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) x[j] = load_float<K.src>(in.word[j]);
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) most = larger(most, x[j]);
        const uint32_t amax = lanes_max<LANES>(tid, to_bits(most) & 0x7FFFFFFFu);
        if (first >= a.count) return;
        uint32_t scale;
        const BlockFacts facts = block_facts<F>(amax, second, a.log2_from, &scale);
        if constexpr (K.op == MxOp::ENCODE) {
            uint64_t word = 0;
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j)
                word |= (uint64_t)block_element<F>(x[j], facts, a.log2_from) << code_shift(K.packing, j);
            write_codes(a.codes + first / 8 * code_width(K.packing) + first % 8 * code_width(K.packing) / 8, word);
            if (tid % LANES == 0) a.scales[first / F.block] = (uint8_t)scale;
        } else {
            const float back = decode_factor<F>(scale, second);
            Out out;
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) out.word[j] = store_value<K.dst>(quantized<F>(x[j], facts, back, a.log2_from));
            *(Out*)((Dst*)a.dst + first) = out;
        }
    }

    static GEMMSIM_HD void decode(const MxArgs& a, uint64_t word, uint32_t scale, uint64_t first, float second) {
        const float factor = decode_factor<F>(scale, second);
        Out out;
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) {
            const uint32_t code = (uint32_t)(word >> code_shift(K.packing, j)) & ((1u << code_width(K.packing)) - 1);
            out.word[j] = store_value<K.dst>(scaled_value<F>(code, factor));
        }
        *(Out*)((Dst*)a.dst + first) = out;
    }

    static GEMMSIM_HD void run(const MxArgs& a, uint32_t tid, uint64_t block) {
        const float second = F.tensor_scale ? second_scale(a) : 1.0f;
        In in[PACKS];
        uint64_t word[PACKS];
        uint32_t scale[PACKS];
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * MX_THREADS + tid) * N;
            if constexpr (K.op == MxOp::DECODE) {
                if (first >= a.count) continue;
                word[p] = read_codes(a.codes + first / 8 * code_width(K.packing) + first % 8 * code_width(K.packing) / 8);
                scale[p] = a.scales[first / F.block];
            } else {
                in[p] = In{};
                if (first < a.count) in[p] = *(const In*)((const Src*)a.src + first);
            }
        }
        GEMMSIM_UNROLL for (int p = 0; p < PACKS; ++p) {
            const uint64_t first = ((block * PACKS + p) * MX_THREADS + tid) * N;
            if constexpr (K.op != MxOp::DECODE) encode(a, in[p], first, tid, second);
            else if (first < a.count) decode(a, word[p], scale[p], first, second);
        }
    }
};

}  // namespace gemmsim
