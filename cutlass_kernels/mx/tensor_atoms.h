// Matrix instructions on values in bfloat16 by CuTe: where values lie in shared memory, and the instructions of a chunk. Tests on
// the host have a model of the chip in place of this header.
#pragma once
#include <cute/tensor.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include "mx/tensor_config.h"

namespace gemmsim {

typedef cute::bfloat16_t TensorValue;

// Lines of 64 terms, 128 bytes, swizzled so that neither the decoder's nor the instructions' accesses meet in a bank; the
// layout that warp groups' instructions read.
typedef decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<TensorValue>{},
                                     cute::Shape<cute::Int<TENSOR_M>, cute::Int<TENSOR_K>>{})) TensorTile;

// What instructions of all routes are to a thread. `ATOMS`: the tiled instruction.
template <class ATOMS> struct TensorSums {
    typedef cute::Shape<cute::Int<TENSOR_M>, cute::Int<TENSOR_N>> Tile;
    // A thread's registers.
    typedef decltype(cute::partition_fragment_C(ATOMS{}, Tile{})) Sums;
    static constexpr int SIZE = decltype(cute::size(Sums{}))::value;

    static GEMMSIM_HD void clear(Sums& sums) { cute::clear(sums); }
    // Byte of a buffer where the value of term `term` of line `line` lies.
    static GEMMSIM_HD int place(int line, int term) { return (int)TensorTile{}(line, term) * (int)sizeof(TensorValue); }
    // Row (0) or column (1) of the tile where register `i` belongs.
    template <int MODE> static GEMMSIM_HD int at(int tid, int i) {
        return (int)cute::get<MODE>(ATOMS{}.get_slice(tid).partition_C(cute::make_identity_tensor(Tile{}))(i));
    }
};

// `multiply`: a template, so that kernels of one route do not compile the other's.
template <TensorRoute ROUTE> struct TensorMma;
typedef cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>, cute::Layout<cute::Shape<cute::_2, cute::_4, cute::_1>>,
                       cute::Tile<cute::_32, cute::_64, cute::_16>>
    TensorWarps;
template <> struct TensorMma<TensorRoute::WARP> : TensorSums<TensorWarps> {
    template <class SUMS> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, SUMS& acc) {
        using namespace cute;
        TensorWarps mma;
        auto own = mma.get_slice(tid);
        Tensor tile_a = make_tensor(make_smem_ptr((TensorValue*)a), TensorTile{}),
               tile_b = make_tensor(make_smem_ptr((TensorValue*)b), TensorTile{});
        Tensor left = own.partition_fragment_A(tile_a);
        Tensor right = own.partition_fragment_B(tile_b);
        auto copy_a = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, TensorValue>{}, mma);
        auto copy_b = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, TensorValue>{}, mma);
        auto from_a = copy_a.get_slice(tid);
        auto from_b = copy_b.get_slice(tid);
        Tensor source_a = from_a.partition_S(tile_a);
        Tensor source_b = from_b.partition_S(tile_b);
        Tensor to_a = from_a.retile_D(left);
        Tensor to_b = from_b.retile_D(right);
        CUTE_UNROLL
        for (int k = 0; k < size<2>(left); ++k) {
            copy(copy_a, source_a(_, _, k), to_a(_, _, k));
            copy(copy_b, source_b(_, _, k), to_b(_, _, k));
            gemm(mma, left(_, _, k), right(_, _, k), acc);
        }
    }
    static GEMMSIM_HD void publish() {}
};
typedef cute::TiledMMA<cute::MMA_Atom<cute::SM90_64x128x16_F32BF16BF16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>>,
                       cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>>
    TensorGroups;
template <> struct TensorMma<TensorRoute::WARP_GROUP> : TensorSums<TensorGroups> {
    template <class SUMS> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, SUMS& acc) {
        using namespace cute;
        TensorGroups mma;
        auto own = mma.get_slice(tid);
        Tensor left = own.partition_fragment_A(make_tensor(make_smem_ptr((TensorValue*)a), TensorTile{}));
        Tensor right = own.partition_fragment_B(make_tensor(make_smem_ptr((TensorValue*)b), TensorTile{}));
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        CUTE_UNROLL
        for (int k = 0; k < size<2>(left); ++k) gemm(mma, left(_, _, k), right(_, _, k), acc);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(acc);
    }
    // What threads wrote to shared memory is seen by the instructions, which read it by another way.
    static GEMMSIM_HD void publish() { cute::tma_store_fence(); }
};

}  // namespace gemmsim
