// Sums in chunks, in two forms. The first is an atom that adds N terms from +0 and then adds their partial sum to its register. The
// second is a function that adds a fragment of partial sums to a fragment of totals. CUTLASS promotes FP8 accumulators in this way.
#pragma once
#include "gemmsim/cute/step_mma.h"

namespace gemmsim {

// d = R_outer(c + total), where total is the sum of N terms by the step K from +0: chunked(N, ..., outer) of a spec.
template <StepConfig STEP, int N, Cast OUTER, Range RANGE = Range::ANY> struct ChunkMma {
    static constexpr StepConfig K = holding(STEP, OUTER);
    static constexpr bool PLACED = is_random(K) || OUTER.mode >= SR;
    static constexpr int TERMS = N;
    typedef typename Step<K>::T T;
    typedef typename StepOf<K, RANGE>::type How;
    typedef typename RegisterOf<K, PLACED>::type Register;
    typedef Rounding<T, OUTER, K.fp32 != 0> Total;
    static_assert(N >= 1);

    // The terms are a(i) b(i) for i = 0 to N - 1.
    template <class A, class B> GEMMSIM_HD static void fma(Register& d, const A& a, const B& b, const Register& c) {
        T run = 0;
        if constexpr (PLACED) {
            Register s = c;
            uint32_t draw = 0;
            if constexpr (OUTER.mode >= SR) draw = s.draw(s.k / N, SITE_COMBINE, OUTER.rbits);
            CUTE_UNROLL
            for (int i = 0; i < N; ++i) run = s.template step<How>(run, a(i), b(i));
            s.value = Total::sum(s.value, run, draw);
            d = s;
        } else {
            CUTE_UNROLL
            for (int i = 0; i < N; ++i) run = How::step(run, a(i), b(i), 0, 0);
            d = Total::sum(c, run, 0);
        }
    }
};

// total = R_outer(total + partial) for each register of two fragments; `partial` restarts from +0. `index` counts the calls from 0.
// Totals are numbers of the partial registers' carrier. That carrier represents `OUTER` if the step was made by holding().
template <Cast OUTER, class TOTAL, class PARTIAL> GEMMSIM_HD void promote(TOTAL&& total, PARTIAL&& partial, uint32_t index) {
    typedef typename cute::remove_cvref_t<PARTIAL>::value_type X;
    typedef decltype(value_of(partial(0))) T;
    static_assert(Rounding<T, OUTER, false>::FITS, "the carrier does not hold the totals: make the step with holding(step, OUTER)");
    static_assert(RegisterFacts<X>::PLACED || OUTER.mode < SR, "a stochastic rounding draws by its place: StepMma<K, RANGE, true>");
    CUTE_UNROLL
    for (int i = 0; i < cute::size(total); ++i) {
        uint32_t draw = 0;
        if constexpr (OUTER.mode >= SR) draw = partial(i).draw(index, SITE_COMBINE, OUTER.rbits);
        total(i) = Rounding<T, OUTER, false>::sum(total(i), value_of(partial(i)), draw);
        set_value(partial(i), T(0));
    }
}

}  // namespace gemmsim

namespace cute {

template <gemmsim::StepConfig K, int N, gemmsim::Cast OUTER, gemmsim::Range RANGE>
struct MMA_Traits<gemmsim::ChunkMma<K, N, OUTER, RANGE>>
    : gemmsim::ScalarTraits<typename gemmsim::ChunkMma<K, N, OUTER, RANGE>::Register, typename gemmsim::ChunkMma<K, N, OUTER, RANGE>::T,
                            typename gemmsim::ChunkMma<K, N, OUTER, RANGE>::T, 1, N> {};

// N operands are not a list of registers that a function takes one by one.
template <gemmsim::StepConfig K, int N, gemmsim::Cast OUTER, gemmsim::Range RANGE, class TD, class DLayout, class TA, class ALayout,
          class TB, class BLayout, class TC, class CLayout>
CUTE_HOST_DEVICE void mma_unpack(const MMA_Traits<gemmsim::ChunkMma<K, N, OUTER, RANGE>>&, Tensor<TD, DLayout>& d,
                                 const Tensor<TA, ALayout>& a, const Tensor<TB, BLayout>& b, const Tensor<TC, CLayout>& c) {
    gemmsim::ChunkMma<K, N, OUTER, RANGE>::fma(d(0), a, b, c(0));
}

}  // namespace cute
