// Multiplies sums by the scales of whole tensors. The sums are those of elements under the scales of their blocks.
#pragma once
#include "gemmsim/device/storage.h"

namespace gemmsim {

// A sum times the scale of A's tensor (if A) and of B's (if B), rounded once. The product of all three has at most 72 bits. It is
// rounded to odd in double, and then to nearest in float.
template <bool A, bool B> GEMMSIM_HD float times_tensor_scales(float y, const float* second_a, const float* second_b) {
    if constexpr (!A && !B) return y;
    double x = 1;
    if constexpr (A) x = (double)*second_a;
    if constexpr (B) x = mul_rn(x, (double)*second_b);  // exact
    double p = mul_rn(x, (double)y);
    const double rest = fma_rn(x, (double)y, -p);
    const uint64_t bits = to_bits(p);
    if (rest != 0 && rest == rest && (bits & 1u) == 0) p = from_bits<double>((rest > 0) == (p > 0) ? bits + 1 : bits - 1);
    return (float)p;
}

// Contiguous sums (rows, n), and a result whose rows are `out_row` elements apart.
// gemmsim/backends/cuda/tensor_cores/wgmma_dequantized.py mirrors this record.
struct TensorSumsArgs {
    const float *sums, *second_a, *second_b;
    void* out;
    int64_t n, out_row;
};
constexpr int TENSOR_SUMS_THREADS = 256;

// Block (x, y) computes the columns of row x from TENSOR_SUMS_THREADS * y on.
template <int OUT, bool A, bool B> GEMMSIM_HD void tensor_sums_body(const TensorSumsArgs& s, uint32_t tid, uint64_t x, uint64_t y) {
    const int64_t column = (int64_t)(y * TENSOR_SUMS_THREADS + tid);
    if (column >= s.n) return;
    const float sum = s.sums[(int64_t)x * s.n + column];
    ((typename Storage<OUT>::Word*)s.out)[(int64_t)x * s.out_row + column] =
        store_value<OUT>(times_tensor_scales<A, B>(sum, s.second_a, s.second_b));
}

}  // namespace gemmsim
