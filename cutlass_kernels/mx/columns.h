// Encodes blocks along a dimension whose neighbouring lines are adjacent in memory, such as the columns of a matrix. A thread has 8
// bytes of each of a block's rows, so it has blocks of two or four neighbouring columns. A warp reads and writes whole memory lines
// of each row.
#pragma once
#include "mx/vector_io.h"
#include "mx/bf16x2.h"
#include "mx/thread_offsets.h"

namespace gemmsim {

// The largest magnitude of each column so far.
template <DType D, int N> struct LargestOf {
    TensorPack<D, N> most;

    GEMMSIM_HD void take(const TensorPack<D, N>& row) {
        GEMMSIM_UNROLL for (int i = 0; i < N / Lane<D>::ELEMENTS; ++i) {
            if constexpr (Lane<D>::ELEMENTS == 2) most.word[i] = larger_pair<D>(most.word[i], magnitudes_of(row.word[i]));
            else most.word[i] = larger(most.word[i], row.word[i]);
        }
    }
    GEMMSIM_HD uint32_t bits(int j) const { return to_bits(unpacked<D, N>(most, j)) & 0x7FFFFFFFu; }
};

template <MxConfig K> struct ColumnBlocks {
    static constexpr MxFormat F = K.format;
    typedef typename Storage<K.src>::Word Src;
    static constexpr int N = 8 / (int)sizeof(Src), UNIT = code_unit(K.packing);
    static constexpr bool PAIRS = K.src == BF16 && takes_pairs<F>();
    static_assert(K.op == MxOp::ENCODE && K.src != F64 && K.packing != Packing::DENSE && F.block <= 32 && F.block % UNIT == 0);

    typedef TensorPack<K.src, N> Row;
    typedef Codes<Packing::BYTES, N> Bytes;  // codes of a row, or of those that share bytes along the columns

    const MxArgs& a;
    const Src* src;
    uint8_t* codes;
    BlockFacts facts[N];

    GEMMSIM_HD Row next_row() {
        const Row row = *(const Row*)src;
        src += a.src_step;
        return row;
    }

    // The codes of one row of blocks of numbers. `factors`: the factors of the columns, in pairs.
    GEMMSIM_HD uint32_t plain_row(const Row& row, const uint32_t (&factors)[2]) const {
        if constexpr (PAIRS) {
            return pair_codes<F>(row.word[0], row.word[1], factors[0], factors[1]);
        } else {
            float v[N];
            GEMMSIM_UNROLL for (int j = 0; j < N; ++j) v[j] = mul_rn(unpacked<K.src, N>(row, j), facts[j].factor);
            return plain_codes<F, Packing::BYTES>(v).word[0];
        }
    }
    GEMMSIM_HD uint32_t any_row(const Row& row) const {
        uint32_t word = 0;
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) word |= block_element<F>(unpacked<K.src, N>(row, j), facts[j], a.log2_from) << (8 * j);
        return word;
    }

    GEMMSIM_HD void write(uint32_t word) {
        Bytes{{word}}.write(codes);
        codes += a.code_step;
    }

    GEMMSIM_HD void plain_block(const Row (&rows)[F.block]) {
        uint32_t factors[2] = {};
        if constexpr (PAIRS) {
            factors[0] = factor_pair(facts[0].factor, facts[1].factor);
            factors[1] = factor_pair(facts[2].factor, facts[3].factor);
        }
        GEMMSIM_UNROLL for (int i = 0; i < F.block; i += UNIT) {
            uint32_t word = 0;
            GEMMSIM_UNROLL for (int u = 0; u < UNIT; ++u) word |= plain_row(rows[i + u], factors) << code_shift(K.packing, u);
            write(word);
        }
    }
    // The same for `n` rows of any blocks, which are read again.
    GEMMSIM_HD void any_block(int n) {
        GEMMSIM_NO_UNROLL for (int i = 0; i < n; i += UNIT) {
            uint32_t word = 0;
            GEMMSIM_UNROLL for (int u = 0; u < UNIT; ++u) if (u == 0 || i + u < n) word |= any_row(next_row()) << code_shift(K.packing, u);
            write(word);
        }
    }

    // Computes the facts of the blocks from their largest magnitudes and writes their scales. Returns whether all blocks are of
    // numbers.
    GEMMSIM_HD bool measured(const LargestOf<K.src, N>& largest, uint8_t* scales) {
        const float second = F.tensor_scale ? second_scale(a) : 1.0f;
        bool numbers = true;
        uint32_t word = 0;
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) {
            uint32_t scale;
            facts[j] = block_facts<F>(largest.bits(j), second, a.log2_from, &scale);
            word |= scale << (8 * j);
            numbers = numbers && facts[j].factor == facts[j].factor;
        }
        Bytes{{word}}.write(scales);
        return numbers;
    }

    GEMMSIM_HD void encode(int64_t n, uint8_t* scales) {
        const Src* const start = src;
        LargestOf<K.src, N> largest{};
        if (n >= F.block) {
            Row rows[F.block];
            GEMMSIM_UNROLL for (int i = 0; i < F.block; ++i) rows[i] = next_row();
            GEMMSIM_UNROLL for (int i = 0; i < F.block; ++i) largest.take(rows[i]);
            if (measured(largest, scales) && is_plain<F>()) return plain_block(rows);
        } else {
            GEMMSIM_NO_UNROLL for (int64_t i = 0; i < n; ++i) largest.take(next_row());
            measured(largest, scales);
        }
        src = start;
        any_block(n < F.block ? (int)n : F.block);
    }

    static GEMMSIM_HD void run(const MxArgs& a, uint64_t i) {
        if (i >= a.count) return;
        const MxPlace<K> at = MxPlace<K>::of(a, i, F.block);
        ColumnBlocks{a, at.src, at.codes, {}}.encode(a.k - at.first, at.scales);
    }
};

}  // namespace gemmsim
