// Tiles of 128 x 128 outputs, each one chain of matrix instructions for k ascending, its register from +0. Two buffers of shared
// memory; the next chunk is on its way while this one is multiplied.
#pragma once
#include "gemm/instruction_atoms.h"

namespace gemmsim {

// 128 bytes of each of 128 lines, swizzled so that no two of a warp's accesses meet in a bank: the layout of warp groups.
template <class V> struct ChunkOf {
    typedef decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<V>{},
                                         cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_LINE / sizeof(V)>>{})) type;
};
constexpr int CHUNK_BYTES = INSTRUCTION_M * INSTRUCTION_LINE;
static_assert(INSTRUCTION_M == INSTRUCTION_N);

template <InstructionConfig K> struct InstructionMma {
    typedef typename ElementType<K.a>::type VA;
    typedef typename ElementType<K.b>::type VB;
    typedef typename InstructionAtom<K.issue, K.a, K.b, K.half_register>::type Atom;
    static constexpr bool GROUP = K.issue == Issue::WARP_GROUP;
    static constexpr int TERMS = instruction_terms(K.a), COUNT = INSTRUCTION_LINE / 32;  // instructions a chunk
    typedef typename cute::conditional<GROUP, cute::TiledMMA<cute::MMA_Atom<Atom>, cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>>,
                                       cute::TiledMMA<cute::MMA_Atom<Atom>, cute::Layout<cute::Shape<cute::_2, cute::_4, cute::_1>>,
                                                      cute::Tile<cute::_32, cute::_64, cute::Int<TERMS>>>>::type type;

    // The first `count` instructions of a chunk. Those beyond the last term are not issued: they are no part of the chain.
    template <class ACC> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, int count, ACC& acc) {
        if constexpr (GROUP) groups(a, b, tid, count, acc);
        else warps(a, b, tid, count, acc);
    }
    template <class ACC> static GEMMSIM_HD void groups(uint8_t* a, uint8_t* b, int tid, int count, ACC& acc) {
        using namespace cute;
        type mma;
        auto own = mma.get_slice(tid);
        Tensor left = own.partition_fragment_A(make_tensor(make_smem_ptr((VA*)a), typename ChunkOf<VA>::type{}));
        Tensor right = own.partition_fragment_B(make_tensor(make_smem_ptr((VB*)b), typename ChunkOf<VB>::type{}));
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        if (count == COUNT) {
            CUTE_UNROLL
            for (int k = 0; k < COUNT; ++k) gemm(mma, left(_, _, k), right(_, _, k), acc);
        } else {
            CUTE_NO_UNROLL
            for (int k = 0; k < count; ++k) gemm(mma, left(_, _, k), right(_, _, k), acc);
        }
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(acc);
    }
    template <class ACC> static GEMMSIM_HD void warps(uint8_t* a, uint8_t* b, int tid, int count, ACC& acc) {
        using namespace cute;
        type mma;
        auto own = mma.get_slice(tid);
        Tensor tile_a = make_tensor(make_smem_ptr((VA*)a), typename ChunkOf<VA>::type{});
        Tensor tile_b = make_tensor(make_smem_ptr((VB*)b), typename ChunkOf<VB>::type{});
        Tensor left = own.partition_fragment_A(tile_a);
        Tensor right = own.partition_fragment_B(tile_b);
        auto copy_a = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, VA>{}, mma);
        auto copy_b = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, VB>{}, mma);
        auto from_a = copy_a.get_slice(tid);
        auto from_b = copy_b.get_slice(tid);
        Tensor source_a = from_a.partition_S(tile_a);
        Tensor source_b = from_b.partition_S(tile_b);
        Tensor to_a = from_a.retile_D(left);
        Tensor to_b = from_b.retile_D(right);
        CUTE_UNROLL
        for (int k = 0; k < COUNT; ++k) {
            if (k >= count) continue;
            copy(copy_a, source_a(_, _, k), to_a(_, _, k));
            copy(copy_b, source_b(_, _, k), to_b(_, _, k));
            gemm(mma, left(_, _, k), right(_, _, k), acc);
        }
    }
    // What threads wrote to shared memory is seen by a warp group's instructions, which read it by another way.
    static GEMMSIM_HD void publish() {
        if constexpr (GROUP) cute::tma_store_fence();
    }
};

template <InstructionConfig K> struct InstructionGemm {
    typedef InstructionMma<K> Mma;
    struct alignas(16) Pack {
        uint32_t word[4];
    };
    static constexpr unsigned SHARED_BYTES = 4 * CHUNK_BYTES + 1024;
    static constexpr int TERMS = Mma::TERMS, COUNT = Mma::COUNT;
    static_assert(instruction_terms(K.a) == instruction_terms(K.b) && K.promoted % COUNT == 0);

    const InstructionArgs& g;
    const uint8_t *a, *b;  // this thread's line of each
    bool has_a, has_b;
    int tid;
    Pack held[2][4];

    // Aligned to a swizzle's period.
    static GEMMSIM_HD uint8_t* buffer(int stage, int operand) {
        const uint64_t base = ((uint64_t)shared_memory() + 1023) / 1024 * 1024;
        return (uint8_t*)(base + (stage * 2 + operand) * CHUNK_BYTES);
    }
    GEMMSIM_HD void fetch(int64_t first) {
        const int64_t bytes = g.k * element_bytes(K.a);
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            const int64_t at = first * element_bytes(K.a) + tid % 2 * 64 + 16 * i;
            const bool there = at < bytes;  // a line ends with zeros, at a multiple of 16 bytes
            held[0][i] = has_a && there ? *(const Pack*)(a + at) : Pack{};
            held[1][i] = has_b && there ? *(const Pack*)(b + at) : Pack{};
        }
    }
    template <class V> static GEMMSIM_HD int place(int tid, int i) {
        const typename ChunkOf<V>::type layout;
        return (int)layout(tid / 2, (tid % 2 * 64 + 16 * i) / (int)sizeof(V)) * (int)sizeof(V);
    }
    GEMMSIM_HD void store(int stage) const {
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            *(Pack*)(buffer(stage, 0) + place<typename Mma::VA>(tid, i)) = held[0][i];
            *(Pack*)(buffer(stage, 1) + place<typename Mma::VB>(tid, i)) = held[1][i];
        }
        Mma::publish();
    }

    GEMMSIM_HD void run(int64_t batch, int64_t row0, int64_t col0) {
        using namespace cute;
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2;
        has_a = row < g.m;
        has_b = col < g.n;
        a = g.a + batch * g.a_batch + row * g.a_row;
        b = g.b + batch * g.b_batch + col * g.b_row;
        typename Mma::type mma;
        Tensor acc = partition_fragment_C(mma, Shape<Int<INSTRUCTION_M>, Int<INSTRUCTION_N>>{});
        float total[K.promoted ? decltype(size(acc))::value : 1] = {};
        clear(acc);
        fetch(0);
        store(0);
        __syncthreads();
        const int64_t instructions = (g.k + TERMS - 1) / TERMS;
        for (int64_t at = 0; at < instructions; at += COUNT) {
            const int stage = (int)(at / COUNT) & 1;
            const bool more = at + COUNT < instructions;
            if (more) fetch((at + COUNT) * TERMS);
            Mma::multiply(buffer(stage, 0), buffer(stage, 1), tid, more ? COUNT : (int)(instructions - at), acc);
            if constexpr (K.promoted != 0) {
                if (!more || (at + COUNT) % K.promoted == 0) {
                    CUTE_UNROLL
                    for (int i = 0; i < size(acc); ++i) total[i] = add_rn(total[i], float(acc(i)));
                    clear(acc);
                }
            }
            if (more) store(stage ^ 1);
            __syncthreads();
        }
        Tensor places = mma.get_slice(tid).partition_C(make_identity_tensor(Shape<Int<INSTRUCTION_M>, Int<INSTRUCTION_N>>{}));
        CUTE_UNROLL
        for (int i = 0; i < size(acc); ++i) {
            const float y = K.promoted ? total[K.promoted ? i : 0] : float(acc(i));
            save(batch, row0 + get<0>(places(i)), col0 + get<1>(places(i)), y);
        }
    }

    GEMMSIM_HD void save(int64_t batch, int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        g.out[batch * g.out_batch + row * g.out_row + col] = store_value<F32>(y);
    }
};

// Block (x, y) of a grid of tiles, those of a batch one after the other along x.
template <InstructionConfig K> GEMMSIM_HD void instruction_body(const InstructionArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    InstructionGemm<K> gemm{g, nullptr, nullptr, false, false, (int)tid};
    gemm.run(x / g.tiles_m, x % g.tiles_m * INSTRUCTION_M, (int64_t)y * INSTRUCTION_N);
}

}  // namespace gemmsim
