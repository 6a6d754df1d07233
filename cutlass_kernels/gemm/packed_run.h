// Runs of a plain register that is binary16 or bfloat16 itself, of operands that are such numbers: two outputs an
// instruction, which rounds as the register does.
#pragma once
#include "gemm/stream.h"

namespace gemmsim {

template <GemmConfig K> struct PackedRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static constexpr int R = K.rows, C = K.cols, GROUP_R = R < 4 ? R : 4, GROUP_C = C < 4 ? C : 4;
    static constexpr DType DTYPE = PackedFormat<K>::DTYPE;
    static_assert(PackedFormat<K>::POSSIBLE && C % 2 == 0 && R % 2 == 0);

    uint32_t s[R][C / 2];

    GEMMSIM_HD void start() { GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C / 2; ++j) s[i][j] = 0; }

    // Pairs of neighbours of a thread's lines.
    template <int COUNT, class E> static GEMMSIM_HD void read(const E* panel, int side, uint32_t (&x)[COUNT / 2]) {
        constexpr int GROUP = Lines<COUNT>::GROUP;
        struct alignas(GROUP * 2) Vector {
            uint32_t v[GROUP / 2];
        };
        GEMMSIM_UNROLL for (int g = 0; g < COUNT / GROUP; ++g) {
            const Vector v = *(const Vector*)(panel + g * GROUP * GEMM_SIDE + side * GROUP);
            GEMMSIM_UNROLL for (int i = 0; i < GROUP / 2; ++i) x[g * GROUP / 2 + i] = v.v[i];
        }
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_UNROLL_BY(4) for (int at = first; at < first + count; ++at) {
            uint32_t a[R / 2], b[C / 2];
            read<R>(stream.buffer->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
            read<C>(stream.buffer->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
            GEMMSIM_UNROLL for (int i = 0; i < R; ++i) {
                const uint32_t x = i % 2 == 0 ? both_low(a[i / 2]) : both_high(a[i / 2]);
                GEMMSIM_UNROLL for (int j = 0; j < C / 2; ++j) s[i][j] = fma_pair<DTYPE>(x, b[j], s[i][j]);
            }
        }
    }

    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) const {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) out.v[i][j] =
            load_value<DTYPE, T>((uint16_t)(s[i][j / 2] >> (j % 2 * 16)));
    }
};

}  // namespace gemmsim
