// Which chunks of terms go through steps without range checks: what formats cannot prove is decided for each chunk from the
// largest magnitudes in it.
#pragma once
#include "gemm/simt/steps.h"
#include "gemmsim/device/unchecked_steps.h"

namespace gemmsim {

// DATA: what the chunk's own numbers show counts, too.
template <GemmConfig K, bool DATA> struct Planned : StepInRange<step_config(K), DATA> {
    typedef StepInRange<step_config(K), DATA> Base;
    static constexpr bool POSSIBLE = K.method == REGISTER && Base::POSSIBLE;

    // How much n roundings can make of 1; each adds a share of at most u and a quantum.
    static constexpr double growth(const Cast& c, int n) {
        double g = 1;
        const double u = c.mode == RNE || c.mode == RNA ? power<double>(-c.p) : power<double>(1 - c.p);
        for (int i = 0; i < n; ++i) g *= 1 + u;
        return g * (1 + 0x1p-18);
    }
    static constexpr float quantum(const Cast& c) {
        const double q = power<double>(c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1);
        return q < 0x1p-120 ? 0x1p-120f : q > 0x1p120 ? 0x1p120f : (float)q;
    }

    // A bound of all sums of a chunk's terms, before and after they are rounded, from one of the sum before.
    static GEMMSIM_HD float bound_after(float before, float product) {
        constexpr float g = (float)growth(K.add, K.depth), q = (float)K.depth * quantum(K.add);
        float term = product;
        if constexpr (!K.fused) term = add_rn(mul_rn(term, (float)growth(K.mul, 1)), quantum(K.mul));
        return add_rn(mul_rn(fma_rn(term, (float)K.depth, before), g), q);
    }
    static GEMMSIM_HD bool inside(float bound, float product) {
        if constexpr (K.fused) return bound < Base::LIMIT;
        else return bound < Base::LIMIT && add_rn(mul_rn(product, (float)growth(K.mul, 1)), quantum(K.mul)) < Base::LIMIT_MUL;
    }
};

}  // namespace gemmsim
