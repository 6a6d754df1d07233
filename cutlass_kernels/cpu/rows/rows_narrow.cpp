// This file computes row operations on floats. It gathers rows into lanes, checks the conditions of
// rows_narrow_lanes.h, and runs the bodies.
#include "rows/rows_narrow.h"
#include "product/transpose.h"
#include "rows/norm.h"
#include "rows/softmax.h"
#include "rows/rows_narrow_lanes.h"

namespace gemmsim::NS {

typedef C32::V V;
typedef C32::VI VI;
typedef C32::VU VU;
enum { LANES = C32::L };
static const int ORDINARY = 60;  // numbers are ordinary if they are zero or from 2^-60 to 2^60 in magnitude

// ---- supported steps

static bool narrow_format(const Cast& c) {
    if (c.mode != RNE || (c.flags & (NO_SUBNORMALS | CODE_PARITY | NO_ZERO))) return false;
    return c.p >= 2 && c.p <= 14 && c.emin - c.p + 1 >= -ORDINARY && c.emax < ORDINARY && c.lo == -c.hi && c.hi < 0x1p60;
}

static bool float_format(const Cast& c) {
    return c.mode == RNE && c.p == 24 && c.emin == -126 && c.emax == 127 && !(c.flags & NO_SUBNORMALS) && (c.flags & NEG_ZERO);
}

// Whether results of step i are results of the row operation and not operands of another step.
static bool last_step(int op, int i) {
    if (op == SOFTMAX) return i == rows::OUTPUT;
    if (op == SOFTMAX_GRAD) return i == rows::GRAD_OUT;
    if (op == NORM) return i == rows::SHIFTED;
    return op == NORM_GRAD && (i == rows::G_OUT || i == rows::G_TERM);
}

void narrow_steps(const RowArgs& a, NarrowSteps* n) {
    n->can = a.dtype == F32 && a.cols <= (1 << 24) &&
             (a.op == ROW_SUM || a.op == SOFTMAX || a.op == SOFTMAX_GRAD || a.op == NORM || a.op == NORM_GRAD);
    n->same = true;
    n->p = 0;
    for (int i = 0; n->can && i < ROW_STEPS; ++i) {
        rows::Step& s = n->steps[i];
        s = a.steps[i];
        if (!(s.cast.flags & PRESENT)) continue;
        const bool last = last_step(a.op, i), narrow = narrow_format(s.cast);
        n->can = narrow || (last && float_format(s.cast));
        s.way = narrow ? NARROW_SPLIT : NARROW_FLOAT;
        n->consts[i] = Const<C32>::make(s.cast);
        if (!narrow) continue;
        if (n->p == 0) n->p = s.cast.p, n->emin = s.cast.emin;
        n->same = n->same && s.cast.p == n->p && s.cast.emin == n->emin && n->p <= 11;
    }
    n->same = n->same && n->p != 0;
}

// ---- rows into lanes

#if ISA_AVX512
// Transposes 16 vectors: it interleaves vectors i and i + 8, four times.
static inline __attribute__((always_inline)) void transpose(V* v) {
    const __m512i lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i hi = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    __m512 x[16], y[16];
    for (int i = 0; i < 16; ++i) x[i] = (__m512)v[i];
#pragma GCC unroll 4
    for (int stage = 0; stage < 4; ++stage) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            y[2 * i] = _mm512_permutex2var_ps(x[i], lo, x[i + 8]);
            y[2 * i + 1] = _mm512_permutex2var_ps(x[i], hi, x[i + 8]);
        }
        for (int i = 0; i < 16; ++i) x[i] = y[i];
    }
    for (int i = 0; i < 16; ++i) v[i] = (V)x[i];
}
#elif ISA_AVX2
// Transposes 8 vectors: it interleaves elements of two vectors, then pairs of elements, then halves of vectors.
static inline __attribute__((always_inline)) void transpose(V* v) {
    __m256 x[8], y[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        x[i] = _mm256_unpacklo_ps((__m256)v[i], (__m256)v[i + 1]);
        x[i + 1] = _mm256_unpackhi_ps((__m256)v[i], (__m256)v[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            y[i + 2 * j] = _mm256_shuffle_ps(x[i + j], x[i + j + 2], 0x44);
            y[i + 2 * j + 1] = _mm256_shuffle_ps(x[i + j], x[i + j + 2], 0xEE);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        v[i] = (V)_mm256_permute2f128_ps(y[i], y[i + 4], 0x20);
        v[i + 4] = (V)_mm256_permute2f128_ps(y[i], y[i + 4], 0x31);
    }
}
#else
static inline __attribute__((always_inline)) void transpose(V* v) { turn(v); }
#endif

// What gathering found in the data.
struct Seen {
    VU bits = {};           // OR of all significands
    // small: below the smallest normal number of the steps and not a number of their format. wild: not ordinary.
    VI small = {}, wild = {};
};

struct NarrowGroup {
    const RowArgs& a;
    const NarrowSteps& n;
    int64_t first;
    int live;
    Seen seen = {};

    void check(V x) {
        const VU u = (VU)x & ~C32::SIGN, below = u - 1;  // a zero becomes the largest number
        seen.bits |= u;
        // Adding 2^23 quanta rounds to a multiple of the quantum.
        const V size = (V)u, quanta = (V)splat_u<C32>((uint32_t)(n.emin - n.p + 1 + 23 + 127) << 23);
        seen.small |= (VI)(below < splat_u<C32>(((uint32_t)(n.emin + 127) << 23) - 1)) & (VI)((size + quanta) - quanta != size);
        seen.wild |=
            (VI)(below < splat_u<C32>(((uint32_t)(127 - ORDINARY) << 23) - 1)) | (VI)(u > splat_u<C32>((uint32_t)(127 + ORDINARY) << 23));
    }
    // Lanes without a row repeat the first row.
    const float* row(const void* p, int i) const { return (const float*)p + (first + (i < live ? i : 0)) * a.cols; }
    void gather(const void* p, V* v) {
        int64_t k = 0;
        for (; k + LANES <= a.cols; k += LANES) {
            V block[LANES];
            for (int i = 0; i < LANES; ++i) check(block[i] = load<V>(row(p, i) + k));
            transpose(block);
            for (int i = 0; i < LANES; ++i) v[k + i] = block[i];
        }
        for (; k < a.cols; ++k) {
            for (int i = 0; i < LANES; ++i) v[k][i] = row(p, i)[k];
            check(v[k]);
        }
    }
    void gather_cols(const void* p, V* v) {
        if (!p) return;
        for (int64_t k = 0; k < a.cols; ++k) check(v[k] = splat<C32>(((const float*)p)[k]));
    }
    V gather_rows(const void* p) {
        V v;
        for (int i = 0; i < LANES; ++i) v[i] = ((const float*)p)[first + (i < live ? i : 0)];
        check(v);
        return v;
    }
    void scatter(const V* v, void* p) const {
        int64_t k = 0;
        for (; k + LANES <= a.cols; k += LANES) {
            V block[LANES];
            for (int i = 0; i < LANES; ++i) block[i] = v[k + i];
            transpose(block);
            for (int i = 0; i < live; ++i) store((float*)p + (first + i) * a.cols + k, block[i]);
        }
        for (; k < a.cols; ++k)
            for (int i = 0; i < live; ++i) ((float*)p)[(first + i) * a.cols + k] = v[k][i];
    }
    void scatter_rows(V v, void* p) const {
        for (int i = 0; i < live; ++i) ((float*)p)[first + i] = v[i];
    }
    bool same() const {
        const int spare = 24 - n.p;
        return n.same && !any_of(seen.small) && !any_of((VI)((seen.bits & ((1u << spare) - 1)) != 0));
    }
};

// ---- the operations

struct Space {
    V *x, *w, *b, *y, *t;
    V mean, rstd;
};

// Replaces numbers masked by -inf by a number whose exponential also rounds to 0. Returns false if the step's format
// does not guarantee that, if a row has only masked numbers, or if other numbers are too large.
static bool without_mask(const RowArgs& a, V* x) {
    const Cast& offset = a.steps[rows::OFFSET].cast;
    if (!(offset.hi >= 256) || !(offset.inf_neg < offset.lo)) return false;
    const V lowest = splat<C32>(-__builtin_inff());
    V top = lowest;
    VI other = {};
    for (int64_t k = 0; k < a.cols; ++k) {
        top = vmax(top, x[k]);
        other |= ~(VI)(magnitude_of(x[k]) <= splat<C32>(0x1p60f)) & ~(VI)(x[k] == lowest);
    }
    if (any_of(other | ~(VI)(magnitude_of(top) <= splat<C32>(0x1p20f)))) return false;
    const V instead = top - splat<C32>(128.0f);
    for (int64_t k = 0; k < a.cols; ++k) x[k] = x[k] == lowest ? instead : x[k];
    return true;
}

// rows::softmax_row for data without NaN. One loop computes the exponentials and their sum, a chain of dependent
// additions. The largest number is that of four chains: if it is a zero, its sign changes no result.
template <class L> static inline void softmax_ordinary(const L& lanes, V* x, int64_t cols, int order) {
    if (order > 1) return rows::softmax_row(lanes, x, x, cols, order);
    V best[4] = {x[0], x[0], x[0], x[0]};
    int64_t k = 0;
    for (; k + 4 <= cols; k += 4)
        for (int i = 0; i < 4; ++i) best[i] = L::larger(x[k + i], best[i]);
    for (; k < cols; ++k) best[0] = L::larger(x[k], best[0]);
    const V top = L::negate(L::larger(L::larger(best[0], best[1]), L::larger(best[2], best[3])));
    V s = L::splat(0.0);
    for (k = 0; k < cols; ++k) {
        x[k] = lanes.function(rows::EXP, lanes.add(x[k], top, rows::OFFSET, k), top, rows::EXPONENT, k);
        s = lanes.add(s, x[k], rows::TOTAL, k);
    }
    for (k = 0; k < cols; ++k) x[k] = lanes.div(x[k], s, rows::OUTPUT, k);
}

// Flattened, so that `left` of the lanes stays in a CPU register.
template <bool ODD> __attribute__((flatten)) static bool run_body(const NarrowGroup& g, const VectorLanes& wide, Space& s) {
    const RowArgs& a = g.a;
    const NarrowLanes<ODD> lanes = {g.n.steps, g.n.consts, &wide, VI{}};
    switch (a.op) {
        case ROW_SUM: s.mean = rows::ordered_sum(lanes, a.cols, a.order, 0, [&](int64_t k) { return s.x[k]; }); break;
        case SOFTMAX: softmax_ordinary(lanes, s.x, a.cols, a.order); break;
        case SOFTMAX_GRAD: rows::softmax_grad_row(lanes, s.x, s.y, s.t, a.cols, a.order); break;
        case NORM: {
            rows::NormRow<V> r = {s.x, a.in[1] ? s.w : nullptr, a.in[2] ? s.b : nullptr, s.x, V{}, V{}, a.eps, a.centered != 0};
            rows::norm_row(lanes, r, a.cols, a.order);
            s.mean = r.mean;
            s.rstd = r.rstd;
            break;
        }
        default: {
            rows::NormGradRow<V> r = {s.x, s.y, a.in[1] ? s.w : nullptr, s.t, s.y, s.mean, s.rstd, a.centered != 0};
            rows::norm_grad_row(lanes, r, a.cols, a.order);
        }
    }
    return !any_of(lanes.left);
}

static void put_back(const NarrowGroup& g, const Space& s) {
    const RowArgs& a = g.a;
    if (a.op == ROW_SUM) return g.scatter_rows(s.mean, a.out[0]);
    g.scatter(a.op == SOFTMAX_GRAD || a.op == NORM_GRAD ? s.t : s.x, a.out[0]);
    if (a.op == NORM) {
        g.scatter_rows(s.mean, a.out[1]);
        g.scatter_rows(s.rstd, a.out[2]);
    }
    if (a.op == NORM_GRAD) g.scatter(s.y, a.out[1]);
}

bool narrow_group(const RowArgs& a, const NarrowSteps& n, const VectorLanes& wide, int64_t first, int live, char* work) {
    Space s;
    s.x = (V*)(((uintptr_t)work + 63) / 64 * 64);
    s.w = s.x + a.cols, s.b = s.w + a.cols, s.y = s.b + a.cols, s.t = s.y + a.cols;
    NarrowGroup g = {a, n, first, live};
    g.gather(a.in[0], s.x);
    if (any_of(g.seen.wild) && !(a.op == SOFTMAX && without_mask(a, s.x))) return false;
    if (a.op == NORM || a.op == NORM_GRAD) g.gather_cols(a.in[1], s.w);
    if (a.op == NORM) g.gather_cols(a.in[2], s.b);
    if (a.op == SOFTMAX_GRAD) g.gather(a.in[1], s.y);
    if (a.op == NORM_GRAD) {
        g.gather(a.in[4], s.y);
        s.mean = g.gather_rows(a.in[2]);
        s.rstd = g.gather_rows(a.in[3]);
    }
    if (a.op != SOFTMAX && any_of(g.seen.wild)) return false;
    if (!(g.same() ? run_body<false>(g, wide, s) : run_body<true>(g, wide, s))) return false;
    put_back(g, s);
    return true;
}

}  // namespace gemmsim::NS
