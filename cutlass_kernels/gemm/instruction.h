// Tiles of 128 x 128 outputs, each one chain of matrix instructions for k ascending, its register from +0. Three or four chunks of
// shared memory, which asynchronous copies fill while others are multiplied.
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

    // The instructions of a whole chunk, or the first `count` of the last one. Those beyond the last term are not issued: they are no
    // part of the chain. A warp group's go on behind this: `settle` waits for all but those of the last KEPT chunks.
    template <bool WHOLE, class ACC> static GEMMSIM_HD void multiply(uint8_t* a, uint8_t* b, int tid, int count, ACC& acc) {
        if constexpr (GROUP) groups<WHOLE>(a, b, tid, count, acc);
        else warps<WHOLE>(a, b, tid, count, acc);
    }
    template <int KEPT, class ACC> static GEMMSIM_HD void settle(ACC& acc) {
        if constexpr (GROUP) {
            cute::warpgroup_wait<KEPT>();
            cute::warpgroup_fence_operand(acc);
        }
    }
    template <bool WHOLE, class ACC> static GEMMSIM_HD void groups(uint8_t* a, uint8_t* b, int tid, int count, ACC& acc) {
        using namespace cute;
        type mma;
        auto own = mma.get_slice(tid);
        Tensor left = own.partition_fragment_A(make_tensor(make_smem_ptr((VA*)a), typename ChunkOf<VA>::type{}));
        Tensor right = own.partition_fragment_B(make_tensor(make_smem_ptr((VB*)b), typename ChunkOf<VB>::type{}));
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        if constexpr (WHOLE) {
            CUTE_UNROLL
            for (int k = 0; k < COUNT; ++k) gemm(mma, left(_, _, k), right(_, _, k), acc);
        } else {
            CUTE_NO_UNROLL
            for (int k = 0; k < count; ++k) gemm(mma, left(_, _, k), right(_, _, k), acc);
        }
        warpgroup_commit_batch();
    }
    template <bool WHOLE, class ACC> static GEMMSIM_HD void warps(uint8_t* a, uint8_t* b, int tid, int count, ACC& acc) {
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
            if (!WHOLE && k >= count) continue;
            copy(copy_a, source_a(_, _, k), to_a(_, _, k));
            copy(copy_b, source_b(_, _, k), to_b(_, _, k));
            gemm(mma, left(_, _, k), right(_, _, k), acc);
        }
    }
    // What was copied to shared memory is seen by a warp group's instructions, which read it by another way.
    static GEMMSIM_HD void publish() {
        if constexpr (GROUP) cute::tma_store_fence();
    }
};

template <InstructionConfig K> struct InstructionGemm {
    typedef InstructionMma<K> Mma;
    static constexpr int TERMS = Mma::TERMS, COUNT = Mma::COUNT, STAGES = instruction_stages(K);
    // Chunks that are on their way. A chunk's place is free when all threads know that it was multiplied: at the next barrier, or at
    // the one after that where instructions go on behind it.
    static constexpr int AHEAD = STAGES - (Mma::GROUP ? 2 : 1);
    static constexpr unsigned SHARED_BYTES = 2 * STAGES * CHUNK_BYTES + 1024;
    static_assert(instruction_terms(K.a) == instruction_terms(K.b) && K.promoted % COUNT == 0);

    const InstructionArgs& g;
    const uint8_t *a, *b;  // this thread's line of each
    bool has_a, has_b;
    int tid;

    // Aligned to a swizzle's period, by an offset: a pointer made of a number would be one to any memory.
    static GEMMSIM_HD uint8_t* buffer(int stage, int operand) {
        uint8_t* const shared = shared_memory();
        return shared + (-cute::cast_smem_ptr_to_uint(shared) & 1023) + (stage * 2 + operand) * CHUNK_BYTES;
    }
    template <class V> static GEMMSIM_HD int place(int tid, int i) {
        const typename ChunkOf<V>::type layout;
        return (int)layout(tid / 2, (tid % 2 * 64 + 16 * i) / (int)sizeof(V)) * (int)sizeof(V);
    }
    // 16 bytes, zeros unless `there`; nothing is read then.
    static GEMMSIM_HD void copy(uint8_t* to, const uint8_t* from, bool there) {
        cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>::copy(*(const cute::uint128_t*)from, *(cute::uint128_t*)to, there);
    }
    // A chunk sets out; a line ends with zeros, at a multiple of 16 bytes. Empty ones are counted, too.
    GEMMSIM_HD void load(int64_t chunk, int64_t chunks, int stage) const {
        if (chunk < chunks) {
            const int64_t bytes = g.k * element_bytes(K.a);
            GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
                const int64_t at = chunk * INSTRUCTION_LINE + tid % 2 * 64 + 16 * i;
                copy(buffer(stage, 0) + place<typename Mma::VA>(tid, i), a + at, has_a && at < bytes);
                copy(buffer(stage, 1) + place<typename Mma::VB>(tid, i), b + at, has_b && at < bytes);
            }
        }
        cute::cp_async_fence();
    }

    // Chunk i is there for all to read, and the next one sets out to a place that all have left.
    GEMMSIM_HD void follow(int64_t i, int64_t chunks, int free) const {
        cute::cp_async_wait<AHEAD - 1>();
        Mma::publish();
        __syncthreads();
        load(i + AHEAD, chunks, free);
    }
    // The register is added to the totals and starts again.
    template <class ACC, int COUNT_OF> static GEMMSIM_HD void add(ACC& acc, float (&total)[COUNT_OF]) {
        Mma::template settle<0>(acc);
        CUTE_UNROLL
        for (int i = 0; i < COUNT_OF; ++i) total[i] = add_rn(total[i], float(acc(i)));
        cute::clear(acc);
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
        const int64_t instructions = (g.k + TERMS - 1) / TERMS, chunks = (instructions + COUNT - 1) / COUNT;
        const int64_t whole = instructions / COUNT;
        GEMMSIM_UNROLL for (int i = 0; i < AHEAD; ++i) load(i, chunks, i);
        int stage = 0, free = AHEAD;
        for (int64_t i = 0; i < whole; ++i) {
            follow(i, chunks, free);
            Mma::template multiply<true>(buffer(stage, 0), buffer(stage, 1), tid, COUNT, acc);
            if (K.promoted != 0 && (i + 1) * COUNT % (K.promoted ? K.promoted : 1) == 0) add(acc, total);
            else Mma::template settle<1>(acc);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            free = free + 1 == STAGES ? 0 : free + 1;
        }
        Mma::template settle<0>(acc);
        if (whole < chunks) {
            follow(whole, chunks, free);
            Mma::template multiply<false>(buffer(stage, 0), buffer(stage, 1), tid, (int)(instructions - whole * COUNT), acc);
            Mma::template settle<0>(acc);
        }
        if constexpr (K.promoted != 0) {
            if (instructions % K.promoted != 0) add(acc, total);
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
