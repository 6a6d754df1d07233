// What a warp does of a chunk by CuTe: where bytes lie in shared memory, how they come there, and the instructions. Tests on the
// host have a model of the chip in place of this header.
#pragma once
#include "gemm/tensor_cores/native_mma_atoms.h"
#include "gemm/tensor_cores/warp_chunk.h"

namespace gemmsim {

// 128 bytes of each of 128 lines, swizzled so that no two of a warp's accesses meet in a bank: the layout of warp groups.
template <class V> struct ChunkOf {
    typedef decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<V>{},
                                         cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_LINE / sizeof(V)>>{})) type;
};

template <InstructionConfig K> struct InstructionMma {
    typedef typename ElementType<K.a>::type VA;
    typedef typename ElementType<K.b>::type VB;
    static constexpr int TERMS = instruction_terms(K.a), COUNT = INSTRUCTION_LINE / 32;  // instructions a chunk
    typedef cute::TiledMMA<cute::MMA_Atom<typename InstructionAtom<Issue::WARP, K.a, K.b, K.half_register>::type>,
                           cute::Layout<cute::Shape<cute::_2, cute::_4, cute::_1>>, cute::Tile<cute::_32, cute::_64, cute::Int<TERMS>>>
        type;
    typedef cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_N>> Tile;
    // A thread's registers.
    typedef decltype(cute::partition_fragment_C(type{}, Tile{})) Sums;
    static constexpr int SIZE = decltype(cute::size(Sums{}))::value;

    static GEMMSIM_HD void clear(Sums& sums) { cute::clear(sums); }
    // The instructions of a whole chunk, or the first `count` of the last one. Those beyond the last term are not issued: they are no
    // part of the chain.
    template <bool WHOLE> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, int count, Sums& acc) {
        const auto tile_a = cute::make_tensor(cute::make_smem_ptr((VA*)a), typename ChunkOf<VA>::type{});
        const auto tile_b = cute::make_tensor(cute::make_smem_ptr((VB*)b), typename ChunkOf<VB>::type{});
        multiply_by_warps<type, WHOLE>(tile_a, tile_b, tid, acc, count);
    }

    // Where a thread's 16 bytes number `i` of its line lie in a chunk.
    static GEMMSIM_HD int place(int tid, int i) {
        const typename ChunkOf<uint8_t>::type layout;
        return (int)layout(tid / 2, tid % 2 * 64 + 16 * i);
    }
    // 16 bytes, zeros unless `there`; nothing is read then.
    static GEMMSIM_HD void copy_bytes(uint8_t* to, const uint8_t* from, bool there) {
        cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>::copy(*(const cute::uint128_t*)from, *(cute::uint128_t*)to, there);
    }
    static GEMMSIM_HD void commit() { cute::cp_async_fence(); }
    template <int KEPT> static GEMMSIM_HD void wait() { cute::cp_async_wait<KEPT>(); }

    // Row (0) or column (1) of the tile where register `i` belongs.
    template <int MODE> static GEMMSIM_HD int at(int tid, int i) {
        return (int)cute::get<MODE>(type{}.get_slice(tid).partition_C(cute::make_identity_tensor(Tile{}))(i));
    }
};

}  // namespace gemmsim
