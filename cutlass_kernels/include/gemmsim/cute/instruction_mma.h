// An atom that computes what the model of a chip's matrix instruction does: hw(...) and fused(...) of a spec.
#pragma once
#include "gemmsim/cute/step_mma.h"
#include "gemmsim/device/hardware_step.h"

namespace gemmsim {

// Models fused(n, kept, out, a=, b=, least=) of a spec, whose `out` is the atom's OUT. A step takes n products of numbers of
// formats a and b, and the register. It truncates each toward zero `kept` bits below the largest exponent (-1: no truncation) and
// adds them exactly. Past OUT's largest value lies infinity, unless it saturates. Zeros have no exponent. The largest exponent
// counts as `least` where it is smaller.
GEMMSIM_HD constexpr HardwareModel fused_products(int n, int kept, const FloatFormat& a, const FloatFormat& b, bool saturates = false,
                                                  int least = LEAST_EXPONENT) {
    return HardwareModel{.kind = HW_FUSED,
                         .products = n,
                         .kept = kept,
                         .out = saturates ? HW_CAST : HW_CAST_INF,
                         .k = n,
                         .least = least,
                         .group = 0,
                         .total_bits = 0,
                         .addend_bits = 0,
                         .halves = 0,
                         .window = -1,
                         .a_emin = cast_to(a).emin,
                         .b_emin = cast_to(b).emin};
}

// wgmma of Hopper on FP8: 32 products, 13 bits, truncated to e8m13.
GEMMSIM_HD constexpr HardwareModel wgmma_fp8(const FloatFormat& a, const FloatFormat& b) {
    HardwareModel m = fused_products(32, 13, a, b, false, -133);
    m.out = HW_E8M13;
    return m;
}

// d is the instruction's next register after c. OUT: the cast of models whose `out` is HW_CAST or HW_CAST_INF.
template <HardwareModel M, Cast OUT = Cast{}> struct InstructionMma {
    static constexpr int TERMS = M.products;
    static_assert(M.k == M.products, "one step an instruction");

    template <class A, class B> GEMMSIM_HD static void fma(float& d, const A& a, const B& b, const float& c) {
        HeldOperands<TERMS> o;
        CUTE_UNROLL
        for (int i = 0; i < TERMS; ++i) {
            o.a[i] = a(i);
            o.b[i] = b(i);
        }
        HardwareStep<M, OUT, HeldOperands<TERMS>> step = {o, TERMS, false, c};
        step.run();
        d = step.c;
    }
};

}  // namespace gemmsim

namespace cute {

template <gemmsim::HardwareModel M, gemmsim::Cast OUT>
struct MMA_Traits<gemmsim::InstructionMma<M, OUT>> : gemmsim::ScalarTraits<float, float, float, 1, M.products> {};

template <gemmsim::HardwareModel M, gemmsim::Cast OUT, class TD, class DLayout, class TA, class ALayout, class TB, class BLayout, class TC,
          class CLayout>
CUTE_HOST_DEVICE void mma_unpack(const MMA_Traits<gemmsim::InstructionMma<M, OUT>>&, Tensor<TD, DLayout>& d, const Tensor<TA, ALayout>& a,
                                 const Tensor<TB, BLayout>& b, const Tensor<TC, CLayout>& c) {
    gemmsim::InstructionMma<M, OUT>::fma(d(0), a, b, c(0));
}

}  // namespace cute
