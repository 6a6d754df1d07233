// The parts of native_mma.h that use CuTe: the layout of a chunk in shared memory, its copies, and the instructions. Tests on the host
// replace this header by a model of the chip.
#pragma once
#include "gemm/tensor_cores/native_mma_atoms.h"
#include "gemm/tensor_cores/warp_chunk.h"

namespace gemmsim {

// The layout of a chunk: 128 bytes of each of 128 lines, swizzled so that no two accesses of a warp share a bank. Warp groups read the
// same layout.
template <class V> struct ChunkOf {
    typedef decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<V>{},
                                         cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_LINE / sizeof(V)>>{})) type;
};

template <InstructionConfig K> struct InstructionMma {
    typedef typename ElementType<K.a>::type VA;
    typedef typename ElementType<K.b>::type VB;
    static constexpr int TERMS = instruction_terms(K.a), COUNT = INSTRUCTION_LINE / 32;  // instructions of a chunk
    typedef cute::TiledMMA<cute::MMA_Atom<typename InstructionAtom<Issue::WARP, K.a, K.b, K.half_register>::type>,
                           cute::Layout<cute::Shape<cute::_2, cute::_4, cute::_1>>, cute::Tile<cute::_32, cute::_64, cute::Int<TERMS>>>
        type;
    typedef cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_N>> Tile;
    // The outputs that a thread has in registers.
    typedef decltype(cute::partition_fragment_C(type{}, Tile{})) Sums;
    static constexpr int SIZE = decltype(cute::size(Sums{}))::value;

    static GEMMSIM_HD void clear(Sums& sums) { cute::clear(sums); }
    // Issues the instructions of a whole chunk, or the first `count` of the last chunk. Instructions beyond the last term are no part of
    // the chain and are not issued.
    template <bool WHOLE> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, int count, Sums& acc) {
        const auto tile_a = cute::make_tensor(cute::make_smem_ptr((VA*)a), typename ChunkOf<VA>::type{});
        const auto tile_b = cute::make_tensor(cute::make_smem_ptr((VB*)b), typename ChunkOf<VB>::type{});
        multiply_by_warps<type, WHOLE>(tile_a, tile_b, tid, acc, count);
    }

    // The position in a chunk of a thread's `i`-th 16 bytes of its line.
    static GEMMSIM_HD int place(int tid, int i) {
        const typename ChunkOf<uint8_t>::type layout;
        return (int)layout(tid / 2, tid % 2 * 64 + 16 * i);
    }
    // Copies 16 bytes. Unless `there`, it writes zeros and reads nothing.
    static GEMMSIM_HD void copy_bytes(uint8_t* to, const uint8_t* from, bool there) {
        cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>::copy(*(const cute::uint128_t*)from, *(cute::uint128_t*)to, there);
    }
    static GEMMSIM_HD void commit() { cute::cp_async_fence(); }
    template <int KEPT> static GEMMSIM_HD void wait() { cute::cp_async_wait<KEPT>(); }

    // The row (MODE 0) or column (MODE 1) of the tile to which register `i` belongs.
    template <int MODE> static GEMMSIM_HD int at(int tid, int i) {
        return (int)cute::get<MODE>(type{}.get_slice(tid).partition_C(cute::make_identity_tensor(Tile{}))(i));
    }
};

}  // namespace gemmsim
