// Conversions of any layout: a thread has one block, or as many neighbours of it as share bytes of packed codes. Threads that
// follow each other take neighbours in memory: where blocks lie along a dimension that is not the last, a warp reads and
// writes whole lines of each step.
#pragma once
#include "mx/config.h"

namespace gemmsim {

template <MxConfig K> struct AnyBlocks {
    static constexpr MxFormat F = K.format;
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    static constexpr int UNIT = code_unit(K.packing), WIDTH = code_width(K.packing), UNIT_BYTES = UNIT * WIDTH / 8;
    static constexpr int BLOCKS = F.block % UNIT == 0 ? 1 : F.block * 2 % UNIT == 0 ? 2 : 4;
    static constexpr int HELD = F.block <= 32 ? F.block : 0;  // elements kept in registers; longer blocks are read twice

    const MxArgs& a;
    const Src* src;
    Dst* dst;
    uint8_t *codes, *scales;
    int64_t first;   // element of the row
    uint32_t bytes;  // codes that wait for their unit to be complete

    GEMMSIM_HD float input(int64_t i) const { return load_float<K.src>(src[i * a.src_step]); }

    // The code of element `i` of the share, the last one of its row or of the share if `last`.
    GEMMSIM_HD void put(int64_t i, uint32_t code, bool last) {
        const int j = (int)(i % UNIT);
        bytes = (j ? bytes : 0u) | code << code_shift(K.packing, j);
        if (j != UNIT - 1 && !last) return;
        uint8_t* to = codes + i / UNIT * UNIT_BYTES * a.code_step;
        for (int b = 0; b < UNIT_BYTES; ++b) to[b * a.code_step] = (uint8_t)(bytes >> (8 * b));
    }

    GEMMSIM_HD uint32_t get(int64_t i) const {
        const int shift = code_shift(K.packing, (int)(i % UNIT));
        const uint8_t* from = codes + (i / UNIT * UNIT_BYTES + shift / 8) * a.code_step;
        uint32_t found = *from;
        if (shift % 8 + WIDTH > 8) found |= (uint32_t)from[a.code_step] << 8;
        return found >> (shift % 8) & ((1u << WIDTH) - 1);
    }

    GEMMSIM_HD void element(int64_t i, float x, const BlockFacts& facts, float back, bool last) {
        if constexpr (K.op == MxOp::ENCODE) put(i, block_element<F>(x, facts, a.log2_from), last);
        else dst[i * a.dst_step] = store_value<K.dst>(quantized<F>(x, facts, back, a.log2_from));
    }

    // Block `b` of the share, of `n` elements from `start` on.
    GEMMSIM_HD void encode(int b, int64_t start, int64_t n, float second, bool last_block) {
        float held[HELD ? HELD : 1], most = 0;
        if constexpr (HELD) {
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i) held[i] = i < n ? input(start + i) : 0.0f;
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i) most = larger(most, held[i]);
        } else {
            for (int64_t i = 0; i < n; ++i) most = larger(most, input(start + i));
        }
        uint32_t scale;
        const BlockFacts facts = block_facts<F>(to_bits(most) & 0x7FFFFFFFu, second, a.log2_from, &scale);
        const float back = K.op == MxOp::QUANTIZE ? decode_factor<F>(scale, second) : 0.0f;
        if constexpr (K.op == MxOp::ENCODE) scales[b * a.scale_step] = (uint8_t)scale;
        if constexpr (HELD) {
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i)
                if (i < n) element(start + i, held[i], facts, back, last_block && i == n - 1);
        } else {
            for (int64_t i = 0; i < n; ++i) element(start + i, input(start + i), facts, back, last_block && i == n - 1);
        }
    }

    GEMMSIM_HD void decode(int b, int64_t start, int64_t n, float second) {
        const float factor = decode_factor<F>(scales[b * a.scale_step], second);
        for (int64_t i = start; i < start + n; ++i) dst[i * a.dst_step] = store_value<K.dst>(scaled_value<F>(get(i), factor));
    }

    GEMMSIM_HD void share() {
        const float second = F.tensor_scale ? second_scale(a) : 1.0f;
        GEMMSIM_NO_UNROLL for (int b = 0; b < BLOCKS; ++b) {
            const int64_t start = (int64_t)b * F.block, rest = a.k - first - start;
            if (rest <= 0) return;
            const int64_t n = rest < F.block ? rest : F.block;
            if constexpr (K.op == MxOp::DECODE) decode(b, start, n, second);
            else encode(b, start, n, second, b == BLOCKS - 1 || rest <= F.block);
        }
    }

    // Share `i`, counted in the order of a.size. Index: 32 bits where they suffice, division is slow.
    template <class Index> static GEMMSIM_HD void run(const MxArgs& a, Index i) {
        int64_t src = 0, codes = 0, scales = 0, dst = 0, along = 0;
        for (int d = a.dims - 1; d >= 0; --d) {
            const Index size = (Index)a.size[d], rest = i / size;
            const int64_t at = (int64_t)(i - rest * size);
            src += at * a.src_stride[d];
            codes += at * a.code_stride[d];
            scales += at * a.scale_stride[d];
            dst += at * a.dst_stride[d];
            if (d == a.along) along = at;
            i = rest;
        }
        AnyBlocks{a, (const Src*)a.src + src, (Dst*)a.dst + dst, a.codes + codes, a.scales + scales, along * F.block * BLOCKS, 0u}.share();
    }
};

}  // namespace gemmsim
