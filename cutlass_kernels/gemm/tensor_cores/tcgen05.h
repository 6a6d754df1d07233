// Matrix products by tcgen05.mma (sm_100a), in tiles of 128 x 128 outputs. Each output is one chain of instructions for k ascending.
// Its register lies in tensor memory and starts from +0. One warp issues the instructions; shared memory has two buffers.
// gemmsim/backends/cuda/tensor_cores/native_mma.py selects this file for Issue::BLOCK; route.py says when such instructions take the
// place of their model.
#pragma once
#include <cute/tensor.hpp>
#include <cute/arch/mma_sm100_umma.hpp>
#include "gemm/tensor_cores/element_types.h"
#include "gemm/tensor_cores/tensor_memory.h"

namespace gemmsim {

template <InstructionConfig K> struct InstructionTmem {
    struct alignas(16) Pack {
        uint32_t word[4];
    };
    typedef typename ElementType<K.a>::type A;
    typedef typename ElementType<K.b>::type B;
    static constexpr auto MAJOR = cute::UMMA::Major::K;
    static constexpr int M = INSTRUCTION_M, N = INSTRUCTION_N, CHUNK = M * CHUNK_LINE, OWN = N / 2;
    static constexpr int TERMS = instruction_terms(K.a), COUNT = CHUNK_LINE / 32;
    static constexpr unsigned SHARED_BYTES = 4 * CHUNK + 1024 + 64;
    static_assert(instruction_terms(K.b) == TERMS && !K.half_register && K.promoted % COUNT == 0);

    const InstructionArgs& g;
    const uint8_t *a, *b;  // this thread's line of each
    bool has_a, has_b;
    int tid;
    Pack held[2][4];

    static GEMMSIM_HD uint8_t* chunk(int stage, int operand) { return aligned_shared() + (stage * 2 + operand) * CHUNK; }
    static GEMMSIM_HD uint64_t* barrier(int stage) { return (uint64_t*)chunk(2, 0) + stage; }

    GEMMSIM_HD void fetch(int64_t index) {
        const int64_t bytes = g.k * element_bytes(K.a);
        GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) {
            const int64_t at = index * CHUNK_LINE + tid % 2 * 64 + 16 * i;
            const bool there = at < bytes;  // zeros fill up a line to a multiple of 16 bytes
            held[0][i] = has_a && there ? *(const Pack*)(a + at) : Pack{};
            held[1][i] = has_b && there ? *(const Pack*)(b + at) : Pack{};
        }
    }
    GEMMSIM_HD void store(int stage) const {
        GEMMSIM_UNROLL for (int o = 0; o < 2; ++o) GEMMSIM_UNROLL for (int i = 0; i < 4; ++i) *
            (Pack*)(chunk(stage, o) + chunk_place(tid / 2, tid % 2 * 64 + 16 * i)) = held[o][i];
        cute::tma_store_fence();  // threads write shared memory by another proxy than the one by which instructions read it
    }

    static GEMMSIM_HD void one(uint64_t left, uint64_t right, uint32_t memory) {
        const uint64_t id = (uint64_t)(uint32_t)cute::UMMA::make_instr_desc<A, B, float, M, N, MAJOR, MAJOR>() << 32;
        if constexpr (K.a == Element::TF32) cute::SM100_MMA_TF32_SS<A, B, float, M, N, MAJOR, MAJOR>::fma(left, right, memory, 1u, id);
        else if constexpr (element_bytes(K.a) == 2)
            cute::SM100_MMA_F16BF16_SS<A, B, float, M, N, MAJOR, MAJOR>::fma(left, right, memory, 1u, id);
        else cute::SM100_MMA_F8F6F4_SS::fma(left, right, memory, 1u, id);
    }
    // One warp calls this. Instructions beyond the last term are no part of the chain and are not issued.
    static GEMMSIM_HD void issue(int stage, int count, uint32_t memory) {
        const uint32_t left = cute::cast_smem_ptr_to_uint(chunk(stage, 0)), right = cute::cast_smem_ptr_to_uint(chunk(stage, 1));
        CUTE_UNROLL
        for (int k = 0; k < COUNT; ++k) {
            if (k >= count) continue;
            one(chunk_descriptor(left + 32 * k), chunk_descriptor(right + 32 * k), memory);
        }
        if (cute::elect_one_sync()) TensorMemory::commit(barrier(stage));
        TensorMemory::warp_sync();
    }
    // Waits until the instructions of chunk i are done. All earlier ones are done then, too. The barrier of the chunk's buffer completes
    // its (i / 2 + 1)-th phase at that time.
    static GEMMSIM_HD void wait(int64_t i) { cute::wait_barrier(*barrier((int)i & 1), (int)(i / 2) & 1); }

    GEMMSIM_HD void run(int64_t batch, int64_t row0, int64_t col0) {
        const int64_t row = row0 + tid / 2, col = col0 + tid / 2;
        has_a = row < g.m;
        has_b = col < g.n;
        a = g.a + batch * g.a_batch + row * g.a_row;
        b = g.b + batch * g.b_batch + col * g.b_row;
        const uint32_t memory = TensorMemory::open(tid, N, (uint32_t*)barrier(2), barrier(0), 2);
        // A warp owns a quarter of the lanes and half of the columns.
        const uint32_t own = memory + ((uint32_t)(tid / 32 % 4 * 32) << 16) + tid / 128 * OWN;
        TensorMemory::clear<OWN>(own);
        float total[OWN] = {};
        const int64_t instructions = (g.k + TERMS - 1) / TERMS, chunks = (instructions + COUNT - 1) / COUNT;
        if (chunks > 0) fetch(0);
        for (int64_t i = 0; i < chunks; ++i) {
            if (i >= 2) wait(i - 2);
            store((int)i & 1);
            TensorMemory::before_sync();
            block_sync();
            if (tid < 32) {
                TensorMemory::after_sync();
                issue((int)i & 1, instructions - i * COUNT < COUNT ? (int)(instructions - i * COUNT) : COUNT, memory);
            }
            if (i + 1 < chunks) fetch(i + 1);
            if constexpr (K.promoted != 0) {
                if (i + 1 == chunks || (i + 1) * COUNT % K.promoted == 0) {
                    wait(i);
                    add(own, total);
                    TensorMemory::clear<OWN>(own);
                }
            }
        }
        if (chunks > 0) wait(chunks - 1);
        if constexpr (K.promoted == 0) add(own, total);
        save(batch, row0 + tid % 128, col0 + tid / 128 * OWN, total);
        TensorMemory::close(tid, N, memory);
    }

    // Copies the register to `total`, or with `promoted` adds it to `total`.
    static GEMMSIM_HD void add(uint32_t from, float (&total)[OWN]) {
        TensorMemory::after_sync();
        GEMMSIM_UNROLL for (int i = 0; i < OWN; i += 8) {
            uint32_t sums[8];
            TensorMemory::read(from + i, sums);
            GEMMSIM_UNROLL for (int j = 0; j < 8; ++j) total[i + j] =
                K.promoted ? add_rn(total[i + j], from_bits<float>(sums[j])) : from_bits<float>(sums[j]);
        }
    }
    GEMMSIM_HD void save(int64_t batch, int64_t row, int64_t col, const float (&total)[OWN]) const {
        GEMMSIM_UNROLL for (int i = 0; i < OWN; ++i) if (row < g.m && col + i < g.n)
            g.out[batch * g.out_batch + row * g.out_row + col + i] = store_value<F32>(total[i]);
    }
};

// Computes block (x, y) of a grid of tiles. The tiles of each batch follow one another along x.
template <InstructionConfig K> GEMMSIM_HD void instruction_body(const InstructionArgs& g, uint32_t tid, uint32_t x, uint32_t y) {
    InstructionTmem<K> gemm{g, nullptr, nullptr, false, false, (int)tid};
    gemm.run(x / g.tiles_m, x % g.tiles_m * INSTRUCTION_M, (int64_t)y * INSTRUCTION_N);
}

}  // namespace gemmsim
