// Tiles of 128 x 128 outputs from values in bfloat16: CuTe's layouts, copies and matrix instructions. Two buffers of shared
// memory; codes of the next chunk are on their way while this one is multiplied.
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
constexpr int TENSOR_TILE_BYTES = TENSOR_M * TENSOR_K * 2;
static_assert(TENSOR_M == TENSOR_N);

template <TensorRoute ROUTE> struct TensorMma;
template <> struct TensorMma<TensorRoute::WARP> {
    typedef cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>, cute::Layout<cute::Shape<cute::_2, cute::_4, cute::_1>>,
                           cute::Tile<cute::_32, cute::_64, cute::_16>>
        type;

    template <class ACC> static GEMMSIM_HD void multiply(TensorValue* a, TensorValue* b, int tid, ACC& acc) {
        using namespace cute;
        type mma;
        auto own = mma.get_slice(tid);
        Tensor tile_a = make_tensor(make_smem_ptr(a), TensorTile{}), tile_b = make_tensor(make_smem_ptr(b), TensorTile{});
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
template <> struct TensorMma<TensorRoute::WARP_GROUP> {
    typedef cute::TiledMMA<cute::MMA_Atom<cute::SM90_64x128x16_F32BF16BF16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>>,
                           cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>>
        type;

    template <class ACC> static GEMMSIM_HD void multiply(TensorValue* a, TensorValue* b, int tid, ACC& acc) {
        using namespace cute;
        type mma;
        auto own = mma.get_slice(tid);
        Tensor left = own.partition_fragment_A(make_tensor(make_smem_ptr(a), TensorTile{}));
        Tensor right = own.partition_fragment_B(make_tensor(make_smem_ptr(b), TensorTile{}));
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

template <TensorConfig K> struct TensorGemm {
    typedef TensorMma<K.route> Mma;
    static constexpr unsigned SHARED_BYTES = 4 * TENSOR_TILE_BYTES + 1024;

    const TensorArgs& g;
    int64_t row0, col0;
    int tid;
    TensorLine<K.a, K.packing_a> left;
    TensorLine<K.b, K.packing_b> right;

    // Aligned to a swizzle's period.
    static GEMMSIM_HD TensorValue* buffer(int stage, int operand) {
        return (TensorValue*)(aligned_shared() + (stage * 2 + operand) * TENSOR_TILE_BYTES);
    }
    GEMMSIM_HD void fetch(int64_t first) {
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2, at = first + tid % 2 * 32;
        left.fetch(g.a + row * g.a_row, g.scale_a + row * g.scale_a_row, at, g.k, row < g.m);
        right.fetch(g.b + col * g.b_row, g.scale_b + col * g.scale_b_row, at, g.k, col < g.n);
    }
    GEMMSIM_HD void store(int stage) const {
        const TensorTile layout;
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            const int at = (int)layout(tid / 2, tid % 2 * 32 + 8 * i);
            *(MxPack<uint32_t, 4>*)(buffer(stage, 0) + at) = left.values(i);
            *(MxPack<uint32_t, 4>*)(buffer(stage, 1) + at) = right.values(i);
        }
        Mma::publish();
    }

    GEMMSIM_HD void run() {
        using namespace cute;
        typename Mma::type mma;
        Tensor acc = partition_fragment_C(mma, Shape<Int<TENSOR_M>, Int<TENSOR_N>>{});
        clear(acc);
        fetch(0);
        store(0);
        __syncthreads();
        for (int64_t at = 0; at < g.k; at += TENSOR_K) {
            const int stage = (int)(at / TENSOR_K) & 1;
            if (at + TENSOR_K < g.k) fetch(at + TENSOR_K);
            Mma::multiply(buffer(stage, 0), buffer(stage, 1), tid, acc);
            if (at + TENSOR_K < g.k) store(stage ^ 1);
            __syncthreads();
        }
        Tensor places = mma.get_slice(tid).partition_C(make_identity_tensor(Shape<Int<TENSOR_M>, Int<TENSOR_N>>{}));
        CUTE_UNROLL
        for (int i = 0; i < size(acc); ++i) save(row0 + get<0>(places(i)), col0 + get<1>(places(i)), acc(i));
    }

    GEMMSIM_HD void save(int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        ((typename Storage<K.out>::Word*)g.out)[row * g.out_row + col] = store_value<K.out>(with_tensor_scales<K>(y, g));
    }
};

// Block (x, y) of a grid of tiles.
template <TensorConfig K> GEMMSIM_HD void tensor_body(const TensorArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    TensorGemm<K> gemm{g, (int64_t)x * TENSOR_M, (int64_t)y * TENSOR_N, (int)tid};
    gemm.run();
}

}  // namespace gemmsim
