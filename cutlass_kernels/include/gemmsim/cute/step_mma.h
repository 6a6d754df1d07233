// An atom of one output and one term: d = R_add(c + a b), or R_add(c + R_mul(a b)).
#pragma once
#include "gemmsim/cute/register.h"

namespace gemmsim {

// PLACED: accumulators store their places, which stochastic roundings need.
template <StepConfig K, Range RANGE = Range::ANY, bool PLACED = is_random(K)> struct StepMma {
    typedef typename Step<K>::T T;
    typedef typename StepOf<K, RANGE>::type How;
    typedef typename RegisterOf<K, PLACED>::type Register;
    static_assert(Step<K>::FITS, "the carrier does not hold the register: make the step with multiply_add or multiply_then_add");
    static_assert(PLACED || !is_random(K), "a stochastic rounding draws by its place");

    using DRegisters = Register[1];
    using ARegisters = T[1];
    using BRegisters = T[1];
    using CRegisters = Register[1];

    CUTE_HOST_DEVICE static void fma(Register& d, const T& a, const T& b, const Register& c) {
        if constexpr (PLACED) {
            Register s = c;
            s.value = s.template step<How>(s.value, a, b);
            d = s;
        } else d = How::step(c, a, b, 0, 0);
    }
};

// The traits of an atom of one thread, one row, COLS columns and TERMS terms.
template <class REGISTER, class A, class B, int COLS, int TERMS> struct ScalarTraits {
    using ValTypeD = REGISTER;
    using ValTypeA = A;
    using ValTypeB = B;
    using ValTypeC = REGISTER;
    using Shape_MNK = cute::Shape<cute::_1, cute::Int<COLS>, cute::Int<TERMS>>;
    using ThrID = cute::Layout<cute::_1>;
    using ALayout = cute::Layout<cute::Shape<cute::_1, cute::Int<TERMS>>>;
    using BLayout = cute::Layout<cute::Shape<cute::_1, cute::Int<COLS * TERMS>>>;
    using CLayout = cute::Layout<cute::Shape<cute::_1, cute::Int<COLS>>>;
};

}  // namespace gemmsim

namespace cute {

template <gemmsim::StepConfig K, gemmsim::Range RANGE, bool PLACED>
struct MMA_Traits<gemmsim::StepMma<K, RANGE, PLACED>>
    : gemmsim::ScalarTraits<typename gemmsim::StepMma<K, RANGE, PLACED>::Register, typename gemmsim::StepMma<K, RANGE, PLACED>::T,
                            typename gemmsim::StepMma<K, RANGE, PLACED>::T, 1, 1> {};

}  // namespace cute
