// Computes tiles of 128 x 128 outputs by the block-scaled instructions of sm_100a (tcgen05.mma). Codes lie in shared memory as
// stored; scales and sums lie in tensor memory. One warp issues the instructions. Two buffers alternate.
#pragma once
#include <cute/tensor.hpp>
#include <cute/arch/mma_sm100_umma.hpp>
#include "gemm/tensor_cores/tensor_memory.h"
#include "mx/block_scaled_config.h"

namespace gemmsim {

template <MxFormat F> struct TmemElement {
    typedef
        typename cute::conditional<F.bits == 4, cute::float_e2m1_t,
                                   typename cute::conditional<F.trailing == 2, cute::float_e5m2_t, cute::float_e4m3_t>::type>::type type;
};

// Instruction kinds mxf8f6f4 (one code per byte, 32 terms) and mxf4, mxf4nvf4 (two codes per byte, 64 terms). An instruction reads
// 32 bytes of each line; a chunk has four instructions.
template <TensorConfig K> struct TmemKind {
    static constexpr bool PAIRS = K.packing_a == Packing::LOW_FIRST;
    static constexpr int TERMS = PAIRS ? 64 : 32, COUNT = CHUNK_LINE / 32, SCALES = TERMS / K.a.block;
    static_assert(K.packing_a == K.packing_b && K.a.block == K.b.block && K.a.powers == K.b.powers);
    static_assert(PAIRS ? K.a.bits == 4 && K.b.bits == 4 && (K.a.powers ? K.a.block == 32 : K.a.block == 16)
                        : K.a.bits == 8 && K.b.bits == 8 && K.a.powers && K.a.block == 32);
    typedef typename TmemElement<K.a>::type A;
    typedef typename TmemElement<K.b>::type B;
    typedef typename cute::conditional<K.a.powers != 0, cute::float_ue8m0_t, cute::float_ue4m3_t>::type S;
    static constexpr auto MAJOR = cute::UMMA::Major::K;
    typedef typename cute::conditional<
        PAIRS,
        cute::SM100_MMA_MXF4_SS<cute::float_e2m1_t, cute::float_e2m1_t, float, S, TENSOR_M, TENSOR_N, PAIRS ? K.a.block : 32, MAJOR, MAJOR>,
        cute::SM100_MMA_MXF8F6F4_SS<A, B, float, S, TENSOR_M, TENSOR_N, MAJOR, MAJOR>>::type Atom;
};

template <TensorConfig K> struct TmemGemm {
    typedef TmemKind<K> Kind;
    struct alignas(16) Pack {
        uint32_t word[4];
    };
    static constexpr int TILES = Kind::COUNT * Kind::SCALES / SCALE_COLUMNS;  // tiles of scales in an operand's chunk
    static constexpr int CHUNK = TENSOR_M * CHUNK_LINE, SCALE_BYTES = TILES * SCALE_TILE_BYTES;
    // Columns of tensor memory: the sums, then each buffer's scales of both operands, four columns per tile.
    static constexpr int COLUMNS = 256, SUMS = TENSOR_N, SCALE_WIDTH = 4 * TILES;
    static constexpr unsigned SHARED_BYTES = 4 * CHUNK + 4 * SCALE_BYTES + 1024 + 64;
    static_assert(SUMS + 4 * SCALE_WIDTH <= COLUMNS && TILES * SCALE_COLUMNS == Kind::COUNT * Kind::SCALES);

    const TensorArgs& g;
    int64_t row0, col0;
    int tid;
    Pack held[2][4];
    uint32_t held_scales[TILES];

    static GEMMSIM_HD uint8_t* base() { return aligned_shared(); }
    static GEMMSIM_HD uint8_t* chunk(int stage, int operand) { return base() + (stage * 2 + operand) * CHUNK; }
    static GEMMSIM_HD uint8_t* scales(int stage, int operand) { return base() + 4 * CHUNK + (stage * 2 + operand) * SCALE_BYTES; }
    static GEMMSIM_HD uint64_t* barrier(int stage) { return (uint64_t*)(base() + 4 * CHUNK + 4 * SCALE_BYTES) + stage; }
    static GEMMSIM_HD uint32_t* place_of_memory() { return (uint32_t*)barrier(2); }

    static GEMMSIM_HD Pack fetch_pack(const uint8_t* line, int64_t first, int64_t bytes, bool exists) {
        if (exists && first + 16 <= bytes) return *(const Pack*)(line + first);
        Pack pack = {};
        GEMMSIM_UNROLL for (int i = 0; i < 16; ++i) if (exists && first + i < bytes) pack.word[i / 4] |= (uint32_t)line[first + i]
                                                                                                         << (8 * (i % 4));
        return pack;
    }
    GEMMSIM_HD void fetch(int64_t index) {
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2, bytes = Kind::PAIRS ? (g.k + 1) / 2 : g.k;
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            const int64_t at = index * CHUNK_LINE + tid % 2 * 64 + 16 * i;
            held[0][i] = fetch_pack(g.a + row * g.a_row, at, bytes, row < g.m);
            held[1][i] = fetch_pack(g.b + col * g.b_row, at, bytes, col < g.n);
        }
        // The first half of the block's threads loads scales of A's lines, the second half those of B's. Beyond the end the code is
        // 0.
        const bool of_a = tid < TENSOR_M;
        const int64_t line = (of_a ? row0 : col0) + tid % TENSOR_M, count = (g.k + K.a.block - 1) / K.a.block;
        const uint8_t* from = of_a ? g.scale_a + line * g.scale_a_row : g.scale_b + line * g.scale_b_row;
        const bool exists = line < (of_a ? g.m : g.n);
        GEMMSIM_UNROLL for (int t = 0; t < TILES; ++t) {
            held_scales[t] = 0;
            GEMMSIM_UNROLL for (int i = 0; i < SCALE_COLUMNS; ++i) {
                const int64_t at = (index * TILES + t) * SCALE_COLUMNS + i;
                if (exists && at < count) held_scales[t] |= (uint32_t)from[at] << (8 * i);
            }
        }
    }
    GEMMSIM_HD void store(int stage) const {
        GEMMSIM_UNROLL for (int o = 0; o < 2; ++o) GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) *
            (Pack*)(chunk(stage, o) + chunk_place(tid / 2, tid % 2 * 64 + 16 * i)) = held[o][i];
        GEMMSIM_UNROLL for (int t = 0; t < TILES; ++t) *
            (uint32_t*)(scales(stage, tid / TENSOR_M) + t * SCALE_TILE_BYTES + scale_place(tid % TENSOR_M, 0)) = held_scales[t];
        cute::tma_store_fence();  // instructions read shared memory through the async proxy
    }

    // One warp copies the scales into tensor memory and issues the instructions in ascending k. It omits those beyond the last
    // term.
    GEMMSIM_HD void issue(int stage, int count, uint32_t memory) const {
        const uint32_t scale_a = memory + SUMS + stage * 2 * SCALE_WIDTH, scale_b = scale_a + SCALE_WIDTH;
        if (cute::elect_one_sync()) {
            GEMMSIM_UNROLL for (int t = 0; t < TILES; ++t) {
                TensorMemory::copy_scales(scale_a + 4 * t,
                                          scale_descriptor(cute::cast_smem_ptr_to_uint(scales(stage, 0)) + t * SCALE_TILE_BYTES));
                TensorMemory::copy_scales(scale_b + 4 * t,
                                          scale_descriptor(cute::cast_smem_ptr_to_uint(scales(stage, 1)) + t * SCALE_TILE_BYTES));
            }
        }
        TensorMemory::warp_sync();
        const uint32_t a = cute::cast_smem_ptr_to_uint(chunk(stage, 0)), b = cute::cast_smem_ptr_to_uint(chunk(stage, 1));
        CUTE_UNROLL
        for (int k = 0; k < Kind::COUNT; ++k) {
            if (k >= count) continue;
            constexpr int PER_WORD = SCALE_COLUMNS / Kind::SCALES;  // instructions whose scales lie in one column
            cute::UMMA::InstrDescriptorBlockScaled what =
                cute::UMMA::make_instr_desc_block_scaled<typename Kind::A, typename Kind::B, float, typename Kind::S, TENSOR_M, TENSOR_N,
                                                         Kind::MAJOR, Kind::MAJOR>();
            what.a_sf_id_ = what.b_sf_id_ = k % PER_WORD * Kind::SCALES;
            const uint64_t id = (uint64_t)(uint32_t)what << 32;
            const uint32_t column = 4 * (k / PER_WORD);
            Kind::Atom::fma(chunk_descriptor(a + 32 * k), chunk_descriptor(b + 32 * k), memory, 1u, id, scale_a + column, scale_b + column);
        }
        if (cute::elect_one_sync()) TensorMemory::commit(barrier(stage));
        TensorMemory::warp_sync();
    }

    // This warp's quarter of the lanes and half of the columns.
    GEMMSIM_HD uint32_t own(uint32_t memory) const { return memory + ((uint32_t)(tid / 32 % 4 * 32) << 16) + tid / 128 * (SUMS / 2); }

    GEMMSIM_HD void run() {
        const uint32_t memory = TensorMemory::open(tid, COLUMNS, place_of_memory(), barrier(0), 2);
        TensorMemory::clear<SUMS / 2>(own(memory));
        const int64_t instructions = (g.k + Kind::TERMS - 1) / Kind::TERMS, chunks = (instructions + Kind::COUNT - 1) / Kind::COUNT;
        if (chunks > 0) fetch(0);
        for (int64_t i = 0; i < chunks; ++i) {
            const int stage = (int)i & 1;
            // Waits until the instructions that read this buffer are complete. Its barrier has then completed i/2 phases.
            if (i >= 2) cute::wait_barrier(*barrier(stage), (int)(i / 2 - 1) & 1);
            store(stage);
            TensorMemory::before_sync();
            block_sync();
            if (tid < 32) {
                TensorMemory::after_sync();
                const int64_t left = instructions - i * Kind::COUNT;
                issue(stage, left < Kind::COUNT ? (int)left : Kind::COUNT, memory);
            }
            if (i + 1 < chunks) fetch(i + 1);
        }
        // Instructions complete in order, so the last barrier covers all of them.
        if (chunks > 0) cute::wait_barrier(*barrier((int)(chunks - 1) & 1), (int)((chunks - 1) / 2) & 1);
        block_sync();
        TensorMemory::after_sync();
        finish(own(memory));
        TensorMemory::close(tid, COLUMNS, memory);
    }

    GEMMSIM_HD void finish(uint32_t from) const {
        const int64_t row = row0 + tid % 128;
        GEMMSIM_NO_UNROLL for (int i = 0; i < SUMS / 2; i += 8) {
            uint32_t sums[8];
            TensorMemory::read(from + i, sums);
            GEMMSIM_UNROLL for (int j = 0; j < 8; ++j) save(row, col0 + tid / 128 * (SUMS / 2) + i + j, from_bits<float>(sums[j]));
        }
    }
    GEMMSIM_HD void save(int64_t row, int64_t col, float y) const {
        if (row >= g.m || col >= g.n) return;
        ((typename Storage<K.out>::Word*)g.out)[row * g.out_row + col] = store_value<K.out>(with_tensor_scales<K>(y, g));
    }
};

// Block (x, y) of a grid of tiles.
template <TensorConfig K> GEMMSIM_HD void tensor_body(const TensorArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    TmemGemm<K> gemm{g, (int64_t)x * TENSOR_M, (int64_t)y * TENSOR_N, (int)tid};
    gemm.run();
}

}  // namespace gemmsim
