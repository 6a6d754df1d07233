// Converts blocks of any layout. A thread has one block, or as many neighbouring blocks as share bytes of packed codes. Consecutive
// threads take neighbours in memory. Where blocks lie along a dimension that is not the last, a warp therefore reads and writes
// whole memory lines in each step.
#pragma once
#include "mx/thread_offsets.h"

namespace gemmsim {

template <MxConfig K> struct AnyBlocks {
    static constexpr MxFormat F = K.format;
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    static constexpr int UNIT = code_unit(K.packing), WIDTH = code_width(K.packing), UNIT_BYTES = UNIT * WIDTH / 8;
    static constexpr int BLOCKS = F.block % UNIT == 0 ? 1 : F.block * 2 % UNIT == 0 ? 2 : 4;
    static constexpr int HELD = F.block <= 32 ? F.block : 0;  // elements in registers; longer blocks are read twice

    // Where a thread's share starts in each tensor, and its state from element to element.
    const MxArgs& a;
    const Src* src;
    Dst* dst;
    uint8_t *codes, *scales;
    int64_t first;   // element of the row
    uint32_t bytes;  // codes that wait for their unit to be complete
    int unit;        // number of these codes

    GEMMSIM_HD float next_input() {
        const float x = load_float<K.src>(*src);
        src += a.src_step;
        return x;
    }

    // Writes the next code of the share. `last`: no further code shares its bytes.
    GEMMSIM_HD void put(uint32_t code, bool last) {
        bytes |= code << code_shift(K.packing, unit);
        if (++unit != UNIT && !last) return;
        GEMMSIM_UNROLL for (int b = 0; b < UNIT_BYTES; ++b, codes += a.code_step)* codes = (uint8_t)(bytes >> (8 * b));
        bytes = unit = 0;
    }

    // Code `i` of the share.
    GEMMSIM_HD uint32_t get(int64_t i) const {
        const int shift = code_shift(K.packing, (int)(i % UNIT));
        const uint8_t* from = codes + (i / UNIT * UNIT_BYTES + shift / 8) * a.code_step;
        uint32_t found = *from;
        if (shift % 8 + WIDTH > 8) found |= (uint32_t)from[a.code_step] << 8;
        return found >> (shift % 8) & ((1u << WIDTH) - 1);
    }

    GEMMSIM_HD void write(float y) {
        *dst = store_value<K.dst>(y);
        dst += a.dst_step;
    }

    // The next element of a block, by the short path if `plain`.
    GEMMSIM_HD void element(float x, const BlockFacts& facts, float back, bool plain, bool last) {
        if constexpr (K.op == MxOp::ENCODE)
            put(plain ? plain_code<F>(mul_rn(x, facts.factor)) : block_element<F>(x, facts, a.log2_from), last);
        else write(plain ? mul_rn(plain_value<F>(mul_rn(x, facts.factor)), back) : quantized<F>(x, facts, back, a.log2_from));
    }

    // Encodes the next block, of `n` elements. `last`: it is the last of the share.
    GEMMSIM_HD void encode(int64_t n, float second, bool last) {
        float held[HELD ? HELD : 1], most = 0;
        const bool complete = HELD && n == HELD;
        const Src* start = src;
        if (complete) {
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i) held[i] = next_input();
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i) most = larger(most, held[i]);
        } else {
            GEMMSIM_NO_UNROLL for (int64_t i = 0; i < n; ++i) most = larger(most, next_input());
        }
        uint32_t scale;
        const BlockFacts facts = block_facts<F>(to_bits(most) & 0x7FFFFFFFu, second, a.log2_from, &scale);
        const float back = K.op == MxOp::QUANTIZE ? decode_factor<F>(scale, second) : 1.0f;
        if constexpr (K.op == MxOp::ENCODE) {
            *scales = (uint8_t)scale;
            scales += a.scale_step;
        }
        const bool number = facts.factor == facts.factor && magnitude(back) < from_bits<float>(INFINITY_BITS);
        if (is_plain<F>() && complete && number) {
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i) element(held[i], facts, back, true, last && i == HELD - 1);
        } else {
            src = start;
            GEMMSIM_NO_UNROLL for (int64_t i = 0; i < n; ++i) element(next_input(), facts, back, false, last && i == n - 1);
        }
    }

    // Decodes block `b` of the share.
    GEMMSIM_HD void decode(int b, int64_t n, float second) {
        const float factor = decode_factor<F>(scales[b * a.scale_step], second);
        if (HELD && n == HELD) {
            GEMMSIM_UNROLL for (int i = 0; i < HELD; ++i) write(scaled_value<F>(get(b * F.block + i), factor));
        } else {
            GEMMSIM_NO_UNROLL for (int64_t i = 0; i < n; ++i) write(scaled_value<F>(get((int64_t)b * F.block + i), factor));
        }
    }

    GEMMSIM_HD void convert() {
        const float second = F.tensor_scale ? second_scale(a) : 1.0f;
        GEMMSIM_NO_UNROLL for (int b = 0; b < BLOCKS; ++b) {
            const int64_t rest = a.k - first - (int64_t)b * F.block;
            if (rest <= 0) return;
            const int64_t n = rest < F.block ? rest : F.block;
            if constexpr (K.op == MxOp::DECODE) decode(b, n, second);
            else encode(n, second, b == BLOCKS - 1 || rest <= F.block);
        }
    }

    static GEMMSIM_HD void run(const MxArgs& a, uint64_t i) {
        if (i >= a.count) return;
        const MxPlace<K> at = MxPlace<K>::of(a, i, F.block * BLOCKS);
        AnyBlocks{a, at.src, at.dst, at.codes, at.scales, at.first, 0u, 0}.convert();
    }
};

}  // namespace gemmsim
