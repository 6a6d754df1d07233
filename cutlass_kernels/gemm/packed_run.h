// Runs of a plain register that is binary16 or bfloat16 itself, of operands that are such numbers: two outputs an
// instruction, which rounds as the register does.
#pragma once
#include "gemm/stream.h"

namespace gemmsim {

template <GemmConfig K> struct PackedRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr int R = K.rows, C = K.cols;
    static constexpr DType DTYPE = PackedFormat<K>::DTYPE;
    static constexpr int UNROLLED = 4;
    static_assert(PackedFormat<K>::POSSIBLE && C % 2 == 0);

    uint32_t s[R][C / 2];

    GEMMSIM_HD void start() { GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C / 2; ++j) s[i][j] = 0; }

    // A: each number in both halves; B: two neighbours.
    struct Factors {
        Twice<DTYPE> a[R];
        uint32_t b[C / 2];
    };
    static GEMMSIM_HD void load(const Cursor<K>& from, int ahead, Factors& x) {
        from.load(ahead, x.a);
        from.load_pairs(ahead, x.b);
    }
    GEMMSIM_HD void add(const Factors& x) {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C / 2; ++j) s[i][j] =
            fma_pair<DTYPE>(x.a[i].word, x.b[j], s[i][j]);
    }

    // Each term's factors are read while the one before is added.
    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        Cursor<K> from(stream, place.ty, place.tx, first);
        const uint32_t stop = from.a + count * Cursor<K>::STEP_A;
        Factors even, odd;
        load(from, 0, even);
        GEMMSIM_NO_UNROLL while (from.a + UNROLLED * Cursor<K>::STEP_A <= stop) {
            GEMMSIM_UNROLL for (int i = 0; i < UNROLLED; i += 2) {
                load(from, i + 1, odd);
                add(even);
                load(from, i + 2, even);
                add(odd);
            }
            from.pass(UNROLLED);
        }
        GEMMSIM_NO_UNROLL while (from.a != stop) {
            add(even);
            load(from, 1, even);
            from.pass(1);
        }
    }

    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) const {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) out.v[i][j] =
            load_value<DTYPE, T>((uint16_t)(s[i][j / 2] >> (j % 2 * 16)));
    }
};

}  // namespace gemmsim
