// Multiplies a chunk of terms in shared memory by warps' instructions. ldmatrix loads the chunk into registers.
#pragma once
#include <cute/tensor.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include "gemmsim/types.h"

namespace gemmsim {

// Adds A * B to `acc` by the tiled instruction MMA. tile_a, tile_b: the chunk's values, (lines, terms). WHOLE: issues all instructions
// of the chunk; otherwise the first `count`.
template <class MMA, bool WHOLE = true, class TILE_A, class TILE_B, class SUMS>
GEMMSIM_HD void multiply_by_warps(const TILE_A& tile_a, const TILE_B& tile_b, int tid, SUMS& acc, int count = 0) {
    using namespace cute;
    MMA mma;
    auto own = mma.get_slice(tid);
    Tensor left = own.partition_fragment_A(tile_a);
    Tensor right = own.partition_fragment_B(tile_b);
    auto copy_a = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, typename TILE_A::value_type>{}, mma);
    auto copy_b = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, typename TILE_B::value_type>{}, mma);
    auto from_a = copy_a.get_slice(tid);
    auto from_b = copy_b.get_slice(tid);
    Tensor source_a = from_a.partition_S(tile_a);
    Tensor source_b = from_b.partition_S(tile_b);
    Tensor to_a = from_a.retile_D(left);
    Tensor to_b = from_b.retile_D(right);
    CUTE_UNROLL
    for (int k = 0; k < size<2>(left); ++k) {
        if (!WHOLE && k >= count) continue;
        copy(copy_a, source_a(_, _, k), to_a(_, _, k));
        copy(copy_b, source_b(_, _, k), to_b(_, _, k));
        gemm(mma, left(_, _, k), right(_, _, k), acc);
    }
}

}  // namespace gemmsim
