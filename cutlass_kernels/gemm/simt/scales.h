// Scales of block formats that an accumulator applies apart from the elements: they multiply the partial sums of groups of terms.
#pragma once
#include "gemm/simt/k_loop.h"

namespace gemmsim {

// Returns the value of a scale's code, or NaN for a code that the format does not use. The value is exact, and so is the product of two.
template <ScaleSide S> GEMMSIM_HD double block_scale(uint32_t code) {
    if constexpr (S.powers) return from_bits<double>(code == 255 ? Carrier<double>::NAN_BITS : (uint64_t)(code + 1023 - 127) << 52);
    else return code >> S.code.bits ? quiet_nan<double>() : decode<S.code, double>(code);
}

// The scales of the lines of one matrix of the batch. An operand that has no block format has scale 1.
template <GemmConfig K> struct BlockScales {
    static constexpr bool PRESENT_ANY = K.scale_a.present || K.scale_b.present;
    static constexpr bool TENSOR = K.scale_a.tensor || K.scale_b.tensor;
    const GemmArgs& g;
    const uint8_t *a, *b;

    // Lines outside the matrix have scale 1. Their outputs are not written.
    GEMMSIM_HD double left(int64_t row, int64_t k) const {
        if constexpr (!K.scale_a.present) return 1;
        else return row < g.m ? block_scale<K.scale_a>(a[row * g.scale_a_row + k / g.block_a * g.scale_a_block]) : 1.0;
    }
    GEMMSIM_HD double right(int64_t col, int64_t k) const {
        if constexpr (!K.scale_b.present) return 1;
        else return col < g.n ? block_scale<K.scale_b>(b[col * g.scale_b_col + k / g.block_b * g.scale_b_block]) : 1.0;
    }
    // Returns the product of the tensors' own scales, which is exact in double.
    GEMMSIM_HD double tensor() const {
        double t = 1;
        if constexpr (K.scale_a.tensor) t = (double)*g.second_a;
        if constexpr (K.scale_b.tensor) t = mul_rn(t, (double)*g.second_b);
        return t;
    }
};

// Returns R_C(s + x t), rounded once. x is the product of two scales. If the carrier is the format and represents x, the carrier's
// fused multiply-add suffices.
template <class T, Cast C> GEMMSIM_HD T scaled_sum(T s, T t, double x, uint32_t R) {
    if constexpr (is_native<T>(C)) {
        const T factor = (T)x;
        if ((double)factor == x) return fma_rn(factor, t, s);
    }
    return (T)Rounding<double, C, false>::fused(x, (double)t, (double)s, R);
}

// Returns R_C(x s), where x is the product of the tensors' own scales.
template <class T, Cast C> GEMMSIM_HD T times_tensor_scale(T s, double x, uint32_t R) {
    return (T)Rounding<double, C, false>::product(x, (double)s, R);
}

}  // namespace gemmsim
