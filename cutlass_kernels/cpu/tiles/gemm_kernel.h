// Plain kernels of one tile of a matrix product: every sum (and product) is rounded to a run-time format (rounders.h). The loop over K is
// outermost, and the sums stay in CPU registers for all of K.
// They serve the steps and kinds that have no special kernel in the table of tiles.cpp. Speculative kernels use them as fallback.
#pragma once
#include "isa_table.h"
#include "tiles/register_block.h"
#include "tiles/rounders.h"
#include "tiles/random_bits.h"

namespace gemmsim::NS {

// One step: adds a * b to s, as STEP says (enum Step in isa_table.h). rm and ra are the random bits of the product's and the sum's
// rounding.
template <class C, int STEP, Rounding KIND>
INL typename C::V step(typename C::V a, typename C::V b, typename C::V s, const Const<C>& mul, const Const<C>& add, typename C::VU rm,
                       typename C::VU ra) {
    typedef typename C::V V;
    if (STEP == FMA_NEAR) return round_to<C, KIND>(vfma(a, b, s), add, ra);
    if (STEP == FMA_ODD) return round_to<C, KIND>(fma_odd<C>(a, b, s), add, ra);
    const V q = round_to<C, KIND>(STEP == MA_NEAR ? a * b : mul_odd<C>(a, b), mul, rm);
    return round_to<C, KIND>(STEP == MA_NEAR ? s + q : add_odd<C>(s, q), add, ra);
}

template <class C, int STEP, Rounding KIND, int ROWS>
INL void rows_plain(const typename C::T* __restrict a, const typename C::T* __restrict b, typename C::T* c, int64_t K, const Const<C>& mul,
                    const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    RegisterBlock<C, ROWS> s;
    s.get(c);
    for (int64_t k = 0; k < K; ++k)
        s.each_product(a + k * MR, b + k * NV * C::L, [&](int i, int j, V x, V y) __attribute__((always_inline)) {
            s[i][j] = step<C, STEP, KIND>(x, y, s[i][j], mul, add, VU{}, VU{});
        });
    s.put(c);
}

// Terms [from, to) of ROWS rows. Step::of() computes a step like step() above. RANDOM: one or both casts may be stochastic.
template <class Step, class C, int STEP, bool RANDOM, int ROWS>
static __attribute__((noinline)) void rows_drawn(const Tile& t, int row, int64_t from, int64_t to, const Const<C>& mul,
                                                 const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b;
    T* const c = (T*)t.c + row * NV * C::L;
    const int rm = RANDOM && STEP >= MA_NEAR && mul.random ? mul.rbits : 0, ra = RANDOM && add.random ? add.rbits : 0;
    const int nm = rm > 16 ? 4 : 8, na = ra > 16 ? 4 : 8;
    Draws<C, RANDOM ? ROWS : 1> dm, da;
    RegisterBlock<C, ROWS> s;
    s.get(c);
    for (int64_t k = from; k < to; ++k) {
        const int64_t at = t.index(k);  // random bits belong to the absolute index of the term, wherever this run starts
        const bool fresh = k == from || t.kmap;
        if (RANDOM && rm && (fresh || at % nm == 0)) dm.make(t, row, (uint32_t)(at / nm), SITE_PRODUCT);
        if (RANDOM && ra && (fresh || at % na == 0)) da.make(t, row, (uint32_t)(at / na), SITE_ADD);
        s.each_product(a + k * MR, b + k * NV * C::L, [&](int i, int j, V x, V y) __attribute__((always_inline)) {
            const VU xm = RANDOM && rm ? dm.get(i, j, (int)(at % nm), rm) : VU{};
            const VU xa = RANDOM && ra ? da.get(i, j, (int)(at % na), ra) : VU{};
            s[i][j] = Step::of(x, y, s[i][j], mul, add, xm, xa);
        });
    }
    s.put(c);
}

template <class C, int STEP> struct RandomStep {
    typedef typename C::V V;
    typedef typename C::VU VU;
    static INL_MEMBER V of(V a, V b, V s, const Const<C>& mul, const Const<C>& add, VU rm, VU ra) {
        return step<C, STEP, Rounding::STOCHASTIC>(a, b, s, mul, add, rm, ra);
    }
};

template <class C, int STEP, Rounding KIND> static void tile(const Tile& t) {
    typedef typename C::T T;
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    if constexpr (KIND == Rounding::STOCHASTIC) {
        int row = 0;
        for (; row + 4 <= t.rows; row += 4) rows_drawn<RandomStep<C, STEP>, C, STEP, true, 4>(t, row, 0, t.k, mul, add);
        for (; row < t.rows; ++row) rows_drawn<RandomStep<C, STEP>, C, STEP, true, 1>(t, row, 0, t.k, mul, add);
    } else {
        enum { BLOCK = ISA_BLOCK(KIND) };
        const T *a = (const T*)t.a, *b = (const T*)t.b;
        T* c = (T*)t.c;
        int row = 0;
        for (; row + BLOCK <= t.rows; row += BLOCK) rows_plain<C, STEP, KIND, BLOCK>(a + row, b, c + row * NV * C::L, t.k, mul, add);
        if constexpr (KIND != Rounding::ANY_MODE)  // one row of ANY_MODE keeps the units busy already
            for (; row + 2 <= t.rows; row += 2) rows_plain<C, STEP, KIND, 2>(a + row, b, c + row * NV * C::L, t.k, mul, add);
        for (; row < t.rows; ++row) rows_plain<C, STEP, KIND, 1>(a + row, b, c + row * NV * C::L, t.k, mul, add);
    }
}

}  // namespace gemmsim::NS
