// CuTe's matrix instructions for values in bfloat16: the layout of the values in shared memory, and the instructions of a chunk.
// Tests on the host include a model of the chip instead of this header.
#pragma once
#include "gemm/tensor_cores/warp_chunk.h"
#include "mx/block_scaled_config.h"

namespace gemmsim {

typedef cute::bfloat16_t TensorValue;

// Lines of 64 terms, which are 128 bytes. The swizzle keeps the accesses of the decoder and of the instructions free of bank
// conflicts. The instructions of warp groups require this layout.
typedef decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<TensorValue>{},
                                     cute::Shape<cute::Int<TENSOR_M>, cute::Int<TENSOR_K>>{})) TensorTile;

// The same for positions as numbers: CuTe swizzles the addresses of the tile above, in bytes, and its own positions not.
typedef decltype(cute::as_position_independent_swizzle_layout(TensorTile{})) TensorPlaces;
static_assert(TensorPlaces{}(1, 0) == TENSOR_K + 8 && TensorPlaces{}(7, 9) == 7 * TENSOR_K + (9 ^ 7 * 8), "line n is swizzled by n % 8");

GEMMSIM_HD auto tensor_tile(uint8_t* at) { return cute::make_tensor(cute::make_smem_ptr((TensorValue*)at), TensorTile{}); }

// What the instructions of all routes have in common for one thread. `ATOMS`: the tiled instruction.
template <class ATOMS> struct TensorSums {
    typedef cute::Shape<cute::Int<TENSOR_M>, cute::Int<TENSOR_N>> Tile;
    // The accumulator registers of a thread.
    typedef decltype(cute::partition_fragment_C(ATOMS{}, Tile{})) Sums;
    static constexpr int SIZE = decltype(cute::size(Sums{}))::value;

    static GEMMSIM_HD void clear(Sums& sums) { cute::clear(sums); }
    // Byte offset in a buffer of the value of term `term` of line `line`.
    static GEMMSIM_HD int place(int line, int term) { return (int)TensorPlaces{}(line, term) * (int)sizeof(TensorValue); }
    // Row (0) or column (1) of the tile to which register `i` belongs.
    template <int MODE> static GEMMSIM_HD int at(int tid, int i) {
        return (int)cute::get<MODE>(ATOMS{}.get_slice(tid).partition_C(cute::make_identity_tensor(Tile{}))(i));
    }
};

// `multiply` is a template, so that kernels of one route do not compile the other's.
template <TensorRoute ROUTE> struct TensorMma;
typedef cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>, cute::Layout<cute::Shape<cute::_2, cute::_4, cute::_1>>,
                       cute::Tile<cute::_32, cute::_64, cute::_16>>
    TensorWarps;
template <> struct TensorMma<TensorRoute::WARP> : TensorSums<TensorWarps> {
    template <class SUMS> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, SUMS& acc) {
        multiply_by_warps<TensorWarps>(tensor_tile(a), tensor_tile(b), tid, acc);
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
        Tensor left = own.partition_fragment_A(tensor_tile(a));
        Tensor right = own.partition_fragment_B(tensor_tile(b));
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        CUTE_UNROLL
        for (int k = 0; k < size<2>(left); ++k) gemm(mma, left(_, _, k), right(_, _, k), acc);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(acc);
    }
    // Makes what threads wrote to shared memory visible to the instructions. These read through the async proxy (PTX), which a
    // barrier alone does not order. The machine code is MEMBAR.ALL.CTA and FENCE.VIEW.ASYNC: each thread waits for its own stores,
    // once per chunk.
    static GEMMSIM_HD void publish() { cute::tma_store_fence(); }
};

}  // namespace gemmsim
