// Runs of a plain register whose format is binary16 or bfloat16, for operands that are numbers of that format. One instruction computes
// two outputs and rounds as the register does. GemmConfig::packed selects them.
#pragma once
#include "gemm/simt/k_loop.h"

namespace gemmsim {

template <GemmConfig K> struct PackedRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr int R = K.rows, C = K.cols;
    static constexpr DType DTYPE = PackedFormat<K>::DTYPE;
    static_assert(PackedFormat<K>::POSSIBLE && C % 2 == 0);

    uint32_t s[R][C / 2];

    GEMMSIM_HD void start() { GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C / 2; ++j) s[i][j] = 0; }

    // The factors of AHEAD terms. A word of A has one number in both halves, and a word of B has two neighbouring columns.
    static constexpr int AHEAD = gemm_ahead(K), PASS = 2 * AHEAD > 4 ? 2 * AHEAD : 4;
    struct Factors {
        Twice<DTYPE> a[AHEAD][R];
        uint32_t b[AHEAD][C / 2];
    };
    static GEMMSIM_HD void load(const Cursor<K>& from, int ahead, Factors& x) {
        GEMMSIM_UNROLL for (int t = 0; t < AHEAD; ++t) {
            from.load(ahead + t, x.a[t]);
            from.load_pairs(ahead + t, x.b[t]);
        }
    }
    GEMMSIM_HD void add(const Factors& x, int t) {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C / 2; ++j) s[i][j] =
            fma_pair<DTYPE>(x.a[t][i].word, x.b[t][j], s[i][j]);
    }
    GEMMSIM_HD void add(const Factors& x) { GEMMSIM_UNROLL for (int t = 0; t < AHEAD; ++t) add(x, t); }

    // Reads the factors of the next terms while those of the previous terms are added.
    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        Cursor<K> from(stream, place.ty, place.tx, first);
        const uint32_t stop = from.a + count * Cursor<K>::STEP_A;
        const int last = (int)stop - PASS * (int)Cursor<K>::STEP_A;  // start of the last whole pass, which may lie before `first`
        Factors even, odd;
        load(from, 0, even);
        GEMMSIM_NO_UNROLL while ((int)from.a <= last) {
            GEMMSIM_UNROLL for (int i = 0; i < PASS; i += 2 * AHEAD) {
                load(from, i + AHEAD, odd);
                add(even);
                load(from, i + 2 * AHEAD, even);
                add(odd);
            }
            from.pass(PASS);
        }
        GEMMSIM_NO_UNROLL for (; from.a != stop; from.pass(1)) {
            load(from, 0, even);
            add(even, 0);
        }
    }

    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) const {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) out.v[i][j] =
            load_value<DTYPE, T>((uint16_t)(s[i][j / 2] >> (j % 2 * 16)));
    }
};

}  // namespace gemmsim
