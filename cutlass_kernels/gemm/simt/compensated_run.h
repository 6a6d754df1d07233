// Runs of a compensated sum: a register S and its correction C. Every operation is rounded to the format:
//   kahan         y = R(q - C); t = R(S + y); C = R(R(t - S) - y); S = t;                    result S
//   neumaier      x = R(q); t = R(S + x); C = R(C + R(R(hi - t) + lo)); S = t;                result R(S + C)
//   two_sum       x = R(q); t = R(S + x); z = R(t - S);
//                 C = R(C + R(R(S - R(t - z)) + R(x - z))); S = t;                            result R(S + C)
//   fast_two_sum  x = R(q); t = R(S + x); C = R(C + R(x - R(t - S))); S = t;                  result R(S + C)
// q is the exact or the rounded product. hi is that of S and x with the larger magnitude, S on a tie, and lo is the other one.
#pragma once
#include "gemm/simt/k_loop.h"

namespace gemmsim {

template <GemmConfig K> struct CompensatedRun {
    typedef Steps<K> S;
    typedef typename S::T T;
    typedef typename S::Add Add;
    static constexpr int MEASURES = NOTHING;
    static constexpr int R = K.rows, C = K.cols;
    // Whether the carrier's nearest sum suffices (near_sum). Both addends are numbers of the format.
    static constexpr bool NEAR = near_sum<T>(K.add, K.add);

    T s[R][C], c[R][C];
    int64_t last;  // k of the last term

    GEMMSIM_HD void start() { GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) s[i][j] = c[i][j] = 0; }

    // The operations of a step. Operation j takes random bits from stream SITE_STEP + j.
    struct Operations {
        const Place<K>& place;
        int i, j;
        int64_t k;

        GEMMSIM_HD uint32_t draw(int site) const {
            if constexpr (K.add.mode >= SR) return place.draw(i, j, k, site, K.add.rbits);
            else return 0;
        }
        template <bool IS_NEAR = NEAR> GEMMSIM_HD T add(T x, T y, int site) const { return Add::template sum<IS_NEAR>(x, y, draw(site)); }

        // Adds the term a * b to S and C. Returns the number that was added to S.
        GEMMSIM_HD T step(T a, T b, T& s, T& c) const {
            constexpr int o = SITE_STEP;
            T q = 0;
            if constexpr (!K.fused) {
                uint32_t R = 0;
                if constexpr (K.mul.mode >= SR) R = place.draw(i, j, k, SITE_PRODUCT, K.mul.rbits);
                q = S::Mul::template product<S::NEAR_PRODUCT>(a, b, R);
            }
            if constexpr (K.method == KAHAN) {
                T y;
                if constexpr (K.fused) y = Add::template fused<S::NEAR_FUSED>(a, b, -c, draw(o));
                else y = add<S::NEAR_SUM>(q, -c, o);
                const T t = add(s, y, o + 1);
                c = add(add(t, -s, o + 2), -y, o + 3);
                s = t;
                return y;
            }
            T x;
            if constexpr (K.fused) x = Add::template product<S::NEAR_PRODUCT>(a, b, draw(o));
            else x = add<false>(q, (T)-0.0, o);  // rounds q to the format; adding -0 keeps the sign of a zero
            const T t = add(s, x, o + 1);
            if constexpr (K.method == NEUMAIER) {
                const bool larger = !((s < 0 ? -s : s) < (x < 0 ? -x : x));
                c = add(c, add(add(larger ? s : x, -t, o + 2), larger ? x : s, o + 3), o + 4);
            } else if constexpr (K.method == TWO_SUM) {
                const T z = add(t, -s, o + 2);
                const T lost = add(s, -add(t, -z, o + 3), o + 4), rest = add(x, -z, o + 5);
                c = add(c, add(lost, rest, o + 6), o + 7);
            } else {
                const T moved = add(t, -s, o + 2);
                c = add(c, add(x, -moved, o + 3), o + 4);
            }
            s = t;
            return x;
        }
    };

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        GEMMSIM_NO_UNROLL for (int at = first; at < first + count; ++at) {
            typename Stream<K>::Number a[R], b[C];
            Lines<R, K.down>::read(stream.buffer()->a + at * Stream<K>::PanelA::PITCH, place.ty, a);
            Lines<C, K.across>::read(stream.buffer()->b + at * Stream<K>::PanelB::PITCH, place.tx, b);
            last = place.k_of(stream.base + at);
            GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) Operations{place, i, j, last}.step(
                stream.left(a[i]), stream.right(a[i], b[j]), s[i][j], c[i][j]);
        }
    }

    GEMMSIM_HD void finish(const Place<K>& place, Totals<K>& out, int64_t, int64_t) const {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            if constexpr (K.method == KAHAN) out.v[i][j] = s[i][j];
            else out.v[i][j] = Operations{place, i, j, last}.add(s[i][j], c[i][j], SITE_FINAL);
        }
    }
};

}  // namespace gemmsim
