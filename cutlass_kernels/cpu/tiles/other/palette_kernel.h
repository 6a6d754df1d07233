// One tile of a matrix product in which every element has a format of its own. It is the loop of gemm_kernel.h with constants for each
// element. They are blended once per tile and read from the first-level cache at each step.
#pragma once
#include "tiles/directed/directed_kernel.h"
#include "tiles/gemm_kernel.h"
#include "tiles/other/palette_tile.h"

namespace gemmsim::NS {

// Takes the constants of `m` in the lanes of `mask` (or in all lanes), but only those that the kind reads.
template <class C, Rounding KIND, bool ALL> INL void blend(Const<C>& k, const Const<C>& m, typename C::VI mask) {
    const bool magic = KIND <= Rounding::OVERFLOWS, fast = KIND == Rounding::DIRECTED || KIND == Rounding::DIRECTED_CLAMP,
               clamps = KIND == Rounding::OVERFLOWS || KIND == Rounding::DIRECTED_CLAMP;
#define BLEND(field) k.field = ALL ? m.field : mask ? m.field : k.field
    if (magic) BLEND(factor);
    if (magic && KIND >= Rounding::SUBNORMALS && !SPLIT_FLOOR) BLEND(magic_add);
    if (magic && KIND >= Rounding::SUBNORMALS) BLEND(magic_min);
    if (fast) BLEND(power_min), BLEND(normal_from);
    if (KIND >= Rounding::SUBNORMALS) BLEND(keep_sign);
    if (KIND >= Rounding::SATURATE && KIND != Rounding::DIRECTED) BLEND(lo), BLEND(hi);
    if (clamps) BLEND(big_lo), BLEND(big_hi);
    if (clamps || KIND == Rounding::ANY_MODE) BLEND(over_pos), BLEND(over_neg);
    if (fast || KIND == Rounding::ANY_MODE) BLEND(base);
    if (KIND == Rounding::ANY_MODE) {
        BLEND(inf_pos), BLEND(inf_neg), BLEND(emin_b), BLEND(ftz_extra), BLEND(flush), BLEND(half_quantum), BLEND(quantum);
        BLEND(near), BLEND(rna), BLEND(rne), BLEND(pos), BLEND(neg), BLEND(odd);
    }
#undef BLEND
}

template <class C, Rounding KIND> INL typename C::V round_lanes(typename C::V s, const Const<C>& k) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    if (KIND != Rounding::ANY_MODE) return round_to<C, KIND>(s, k, (VU){});
    const V v = round_general<C, false>(s, k, (VU){});  // this keeps the sign of every zero (lane_constants)
    return (V)((VU)v & ~((VU)(v == (V){}) & C::SIGN & ~k.keep_sign));
}

// Steps with constants for each lane. MODE is used only where rounding is directed.
template <class C, int STEP, Rounding KIND, int MODE> struct LaneStep {
    typedef typename C::V V;
    static INL_MEMBER V step(V a, V b, V s, const Const<C>& mul, const Const<C>& add) {
        if (STEP == FMA_NEAR) return round_lanes<C, KIND>(vfma(a, b, s), add);
        if (STEP == FMA_ODD) return round_lanes<C, KIND>(fma_odd<C>(a, b, s), add);
        const V q = round_lanes<C, KIND>(STEP == MA_NEAR ? a * b : mul_odd<C>(a, b), mul);
        return round_lanes<C, KIND>(STEP == MA_NEAR ? s + q : add_odd<C>(s, q), add);
    }
};
#if ISA_AVX512
template <class C, int STEP, int MODE> struct LaneStep<C, STEP, Rounding::DIRECTED, MODE> {
    typedef typename C::V V;
    static INL_MEMBER V step(V a, V b, V s, const Const<C>& mul, const Const<C>& add) {
        return step_directed<C, STEP, MODE, false>(a, b, s, mul, add, (typename C::VU){}, (typename C::VU){});
    }
};
template <class C, int STEP, int MODE> struct LaneStep<C, STEP, Rounding::DIRECTED_CLAMP, MODE> {
    typedef typename C::V V;
    static INL_MEMBER V step(V a, V b, V s, const Const<C>& mul, const Const<C>& add) {
        return step_directed<C, STEP, MODE, true>(a, b, s, mul, add, (typename C::VU){}, (typename C::VU){});
    }
};
#endif

// Computes ROWS rows, with checks unless `most` is null. Returns the lanes that a check found beyond their bounds.
template <class C, class S, int ROWS>
static __attribute__((noinline)) typename C::VI rows_lanes(const typename C::T* __restrict a, const typename C::T* __restrict b,
                                                           typename C::T* c, int64_t K, const Const<C> (*mul)[NV],
                                                           const Const<C> (*add)[NV], const typename C::V (*most)[NV], int64_t steps) {
    typedef typename C::V V;
    V s[ROWS][NV];
    typename C::VI lost = {};
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    for (int64_t k = 0; k < K;) {
        const int64_t end = most && K - k > steps ? k + steps : K;
        for (; k < end; ++k) {
            V bv[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) bv[j] = load<V>(b + (k * NV + j) * C::L);
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; ++i) {
                const V av = splat<C>(a[k * MR + i]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; ++j) s[i][j] = S::step(av, bv[j], s[i][j], mul[i][j], add[i][j]);
            }
        }
        if (!most) continue;
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j)
                lost |= ~(typename C::VI)((V)((typename C::VU)s[i][j] & ~C::SIGN) < most[i][j]);  // a NaN is lost, too
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
    return lost;
}

// Returns a mask of whole lanes: those of vector j of row i whose `p.select` is member m.
template <class C> INL typename C::VI chosen_lanes(const PaletteTile& p, int i, int j, int m) {
    typename C::VI chosen;
    const uint8_t* select = p.select + (i * NV + j) * C::L;
    for (int lane = 0; lane < C::L; ++lane) chosen[lane] = select[lane] == m ? -1 : 0;
    return chosen;
}

// Sets the bounds of all lanes. Elements that are computed elsewhere are below any bound.
template <class C> static void lane_bounds(const PaletteTile& p, typename C::V (*most)[NV]) {
    typedef typename C::T T;
    for (int i = 0; i < p.t.rows; ++i)
        for (int j = 0; j < NV; ++j) {
            most[i][j] = splat<C>((T)__builtin_inf());
            for (int m = 0; m < MAX_MEMBERS; ++m)
                if (p.members >> m & 1) most[i][j] = chosen_lanes<C>(p, i, j, m) ? splat<C>((T)p.most[m]) : most[i][j];
        }
}

template <class C, Rounding KIND> static void lane_constants(const PaletteTile& p, const Cast* const* casts, Const<C> (*out)[NV]) {
    bool first = true;
    for (int m = 0; m < MAX_MEMBERS; ++m) {
        if (!(p.members >> m & 1)) continue;
        const Const<C> k = Const<C>::make(*casts[m]);
        for (int i = 0; i < p.t.rows; ++i)
            for (int j = 0; j < NV; ++j) {
                if (first) {
                    blend<C, KIND, true>(out[i][j], k, typename C::VI{});
                    out[i][j].neg_zero = 1;
                    continue;
                }
                blend<C, KIND, false>(out[i][j], k, chosen_lanes<C>(p, i, j, m));
            }
        first = false;
    }
}

template <class C, int STEP, Rounding KIND, int MODE = RNE> static bool tile_lanes(const PaletteTile& p) {
    enum { BLOCK = ISA_BLOCK(KIND) };
    typedef LaneStep<C, STEP, KIND, MODE> S;
    typedef typename C::T T;
    Const<C> add[MR][NV], mul[STEP >= MA_NEAR ? MR : 1][NV];
    lane_constants<C, KIND>(p, p.add, add);
    if (STEP >= MA_NEAR) lane_constants<C, KIND>(p, p.mul, mul);
    const T *a = (const T*)p.t.a, *b = (const T*)p.t.b;
    T* c = (T*)p.t.c;
    typename C::V bounds[KIND == Rounding::SUBNORMALS ? MR : 1][NV];
    const bool speculation = KIND == Rounding::SUBNORMALS && p.steps;
    if (speculation) lane_bounds<C>(p, bounds);
    typename C::VI lost = {};
    auto rows = [&](auto count, int row) {
        constexpr int N = decltype(count)::value;
        lost |= rows_lanes<C, S, N>(a + row, b, c + row * NV * C::L, p.t.k, mul + (STEP >= MA_NEAR ? row : 0), add + row,
                                    speculation ? bounds + row : nullptr, p.steps);
    };
    struct Many {
        enum { value = BLOCK };
    };
    struct Single {
        enum { value = 1 };
    };
    int row = 0;
    for (; row + BLOCK <= p.t.rows; row += BLOCK) rows(Many{}, row);
    for (; row < p.t.rows; ++row) rows(Single{}, row);
    for (int lane = 0; lane < C::L; ++lane)
        if (lost[lane]) return false;
    return true;
}

#if ISA_AVX512
template <class C, int STEP, Rounding KIND> static bool tile_lanes_mode(const PaletteTile& p) {
    switch (p.mode) {
        case RNA: return tile_lanes<C, STEP, KIND, RNA>(p);
        case RTZ: return tile_lanes<C, STEP, KIND, RTZ>(p);
        case RU: return tile_lanes<C, STEP, KIND, RU>(p);
        default: return tile_lanes<C, STEP, KIND, RD>(p);
    }
}
#endif

template <class C, int STEP> static bool tile_lanes_kind(const PaletteTile& p) {
    switch (p.kind) {
#if ISA_AVX512
        case Rounding::DIRECTED: return tile_lanes_mode<C, STEP, Rounding::DIRECTED>(p);
        case Rounding::DIRECTED_CLAMP: return tile_lanes_mode<C, STEP, Rounding::DIRECTED_CLAMP>(p);
#endif
        case Rounding::NORMAL: return tile_lanes<C, STEP, Rounding::NORMAL>(p);
        case Rounding::SUBNORMALS: return tile_lanes<C, STEP, Rounding::SUBNORMALS>(p);
        case Rounding::SATURATE: return tile_lanes<C, STEP, Rounding::SATURATE>(p);
        case Rounding::OVERFLOWS: return tile_lanes<C, STEP, Rounding::OVERFLOWS>(p);
        default: return tile_lanes<C, STEP, Rounding::ANY_MODE>(p);
    }
}

template <class C> static bool tile_lanes_step(const PaletteTile& p) {
    switch (p.step) {
        case FMA_NEAR: return tile_lanes_kind<C, FMA_NEAR>(p);
        case FMA_ODD: return tile_lanes_kind<C, FMA_ODD>(p);
        case MA_NEAR: return tile_lanes_kind<C, MA_NEAR>(p);
        default: return tile_lanes_kind<C, MA_ODD>(p);
    }
}

}  // namespace gemmsim::NS
