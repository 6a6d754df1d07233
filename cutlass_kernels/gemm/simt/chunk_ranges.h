// Decides which chunks of terms take steps without range checks (device/unchecked_steps.h). Where the formats do not prove that all
// sums stay in range, the largest magnitudes in each chunk decide. register_run.h uses this.
#pragma once
#include "gemm/simt/steps.h"
#include "gemmsim/device/unchecked_steps.h"

namespace gemmsim {

// DATA: the measured significands and quanta of the chunk count, too, not only the formats.
template <GemmConfig K, bool DATA> struct Planned : StepInRange<step_config(K), DATA> {
    typedef StepInRange<step_config(K), DATA> Base;
    static constexpr bool POSSIBLE = K.method == REGISTER && Base::POSSIBLE;

    // Returns an upper bound of the factor by which n roundings enlarge a magnitude. Each rounding adds at most a relative error u and
    // a quantum; `quantum` below returns the latter.
    static constexpr double growth(const Cast& c, int n) {
        double g = 1;
        const double u = c.mode == RNE || c.mode == RNA ? power<double>(-c.p) : power<double>(1 - c.p);
        for (int i = 0; i < n; ++i) g *= 1 + u;
        return g * (1 + 0x1p-18);
    }
    // Returns the quantum of the smallest numbers of `c`, clamped to the range of float.
    static constexpr float quantum(const Cast& c) {
        const double q = power<double>(c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1);
        return q < 0x1p-120 ? 0x1p-120f : q > 0x1p120 ? 0x1p120f : (float)q;
    }

    // Returns a bound of all sums of a chunk's terms, before and after they are rounded. `before` is a bound of the sum before the chunk,
    // and `product` is a bound of its products.
    static GEMMSIM_HD float bound_after(float before, float product) {
        constexpr float g = (float)growth(K.add, K.depth), q = (float)K.depth * quantum(K.add);
        float term = product;
        if constexpr (!K.fused) term = add_rn(mul_rn(term, (float)growth(K.mul, 1)), quantum(K.mul));
        return add_rn(mul_rn(fma_rn(term, (float)K.depth, before), g), q);
    }
    // Returns whether sums within `bound` and products within `product` stay in the range of unchecked steps.
    static GEMMSIM_HD bool inside(float bound, float product) {
        if constexpr (K.fused) return bound < Base::LIMIT;
        else return bound < Base::LIMIT && add_rn(mul_rn(product, (float)growth(K.mul, 1)), quantum(K.mul)) < Base::LIMIT_MUL;
    }
};

}  // namespace gemmsim
