// Tensors' own scales on sums of products of what their other scales made of elements.
#pragma once
#include "gemmsim/device/storage.h"

namespace gemmsim {

// The scales of A's tensor (if A) and B's on a sum, rounded once: the product of all three, at most 72 bits, is first rounded to odd
// in double.
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

// Sums (rows, n) side by side; rows of the result are `out_row` elements apart. gemmsim/backends/cuda/tensor_cores/wgmma_dequantized.py mirrors it.
struct TensorSumsArgs {
    const float *sums, *second_a, *second_b;
    void* out;
    int64_t n, out_row;
};
constexpr int TENSOR_SUMS_THREADS = 256;

// Block (x, y): columns from TENSOR_SUMS_THREADS times y on of row x.
template <int OUT, bool A, bool B> GEMMSIM_HD void tensor_sums_body(const TensorSumsArgs& s, uint32_t tid, uint64_t x, uint64_t y) {
    const int64_t column = (int64_t)(y * TENSOR_SUMS_THREADS + tid);
    if (column >= s.n) return;
    const float sum = s.sums[(int64_t)x * s.n + column];
    ((typename Storage<OUT>::Word*)s.out)[(int64_t)x * s.out_row + column] =
        store_value<OUT>(times_tensor_scales<A, B>(sum, s.second_a, s.second_b));
}

}  // namespace gemmsim
