// A complete matrix product with an accumulator of gemmsim's in CuTe's own TiledMMA and cute::gemm: C = A B, A (M, K) and B (K, N)
// given as (N, K), both with terms side by side; C (M, N) by rows. A block of 256 threads has a tile of 64 x 64 outputs. The
// kernel is plain: one buffer, no vectors, no pipeline; what to make faster is the user's own, and changes no bit.
#pragma once
#include "gemmsim/cute/atoms.h"
#include "gemmsim/device/block.h"

struct GemmArgs {
    const void *a, *b;
    float* c;
    int m, n, k;
    uint64_t seed;
};

template <class Atom, class A, class B, int SIDE = 64, int TILE_K = 16> struct Gemm {
    static constexpr int TILE_M = SIDE, TILE_N = SIDE, THREADS = 256;
    // Threads side by side in M and N, never in K: an output's terms meet in one register, in order.
    static constexpr int ATOM_N = decltype(cute::size<1>(typename cute::MMA_Traits<Atom>::Shape_MNK{}))::value;
    using Mma = decltype(cute::make_tiled_mma(cute::MMA_Atom<Atom>{}, cute::Layout<cute::Shape<cute::_16, cute::_16, cute::_1>>{}));
    // Lines are a term longer than the tile: neighbours lie in different banks.
    using Lines = cute::Layout<cute::Shape<cute::Int<TILE_M>, cute::Int<TILE_K>>, cute::Stride<cute::Int<TILE_K + 1>, cute::_1>>;
    // Long steps, those with random bits above all, are not copied.
    static constexpr int UNROLLED = gemmsim::RegisterFacts<typename Mma::ValTypeC>::PLACED || SIDE < 64 ? 1 : 4;
    struct Shared {
        A a[TILE_M * (TILE_K + 1)];
        B b[TILE_N * (TILE_K + 1)];
    };
    static_assert(SIDE % (16 * ATOM_N) == 0 && TILE_K % 16 == 0);

    // The terms from k0 on of the tile's lines; beyond the matrix zeros, which change nothing but a total of -0.
    template <class X> static GEMMSIM_HD void load(const X* matrix, int lines, int k, int line0, int k0, X* to, int tid) {
        using namespace cute;
        Tensor source = make_tensor(make_gmem_ptr(matrix), make_shape(lines, k), make_stride(k, _1{}));
        Tensor tile = local_tile(source, Shape<Int<TILE_M>, Int<TILE_K>>{}, make_coord(line0 / TILE_M, k0 / TILE_K));
        Tensor places = local_tile(make_identity_tensor(make_shape(lines, k)), Shape<Int<TILE_M>, Int<TILE_K>>{},
                                   make_coord(line0 / TILE_M, k0 / TILE_K));
        Layout<Shape<_16, _16>, Stride<_16, _1>> threads;
        Tensor mine = local_partition(tile, threads, tid);
        Tensor where = local_partition(places, threads, tid);
        Tensor there = local_partition(make_tensor(make_smem_ptr(to), Lines{}), threads, tid);
        CUTE_UNROLL
        for (int i = 0; i < size(mine); ++i) there(i) = elem_less(where(i), shape(source)) ? mine(i) : X(0);
    }

    // `finish` makes an output of an accumulator, `chunk` is called after each tile of terms.
    template <class CHUNK, class FINISH>
    static GEMMSIM_HD void run(const GemmArgs& g, Shared& shared, int tid, int x, int y, CHUNK chunk, FINISH finish) {
        using namespace cute;
        const int row0 = x * TILE_M, col0 = y * TILE_N;
        Mma mma;
        auto mine = mma.get_slice(tid);
        Tensor shared_a = mine.partition_A(make_tensor(make_smem_ptr(shared.a), Lines{}));  // (MMA, MMA_M, MMA_K)
        Tensor shared_b = mine.partition_B(make_tensor(make_smem_ptr(shared.b), Lines{}));  // (MMA, MMA_N, MMA_K)
        Tensor held_a = make_fragment_like<typename Mma::ValTypeA>(shared_a(_, _, 0));      // one atom's terms
        Tensor held_b = make_fragment_like<typename Mma::ValTypeB>(shared_b(_, _, 0));
        Tensor places = mine.partition_C(make_identity_tensor(Shape<Int<TILE_M>, Int<TILE_N>>{}));
        Tensor acc = partition_fragment_C(mma, Shape<Int<TILE_M>, Int<TILE_N>>{});
        gemmsim::start(acc, places, g.seed, (uint64_t)row0, (uint32_t)col0);
        CUTE_NO_UNROLL
        for (int k0 = 0; k0 < g.k; k0 += TILE_K) {
            load((const A*)g.a, g.m, g.k, row0, k0, shared.a, tid);
            load((const B*)g.b, g.n, g.k, col0, k0, shared.b, tid);
            gemmsim::block_sync();  // __syncthreads() on a GPU
            GEMMSIM_UNROLL_BY(UNROLLED)
            for (int k = 0; k < size<2>(shared_a); ++k) {
                copy(shared_a(_, _, k), held_a);  // and from the operands' types to the atom's, exactly
                copy(shared_b(_, _, k), held_b);
                gemm(mma, held_a, held_b, acc);
            }
            chunk(acc, k0 + TILE_K);
            gemmsim::block_sync();
        }
        finish(acc);
        Tensor out = make_tensor(make_gmem_ptr(g.c), make_shape(g.m, g.n), make_stride(g.n, _1{}));
        CUTE_UNROLL
        for (int i = 0; i < size(acc); ++i) {
            const auto at = make_coord(row0 + get<0>(places(i)), col0 + get<1>(places(i)));
            // The one NaN, whatever the atom made
            if (elem_less(at, shape(out))) out(at) = gemmsim::store_value<gemmsim::F32>(float(gemmsim::value_of(acc(i))));
        }
    }

    static GEMMSIM_HD void run(const GemmArgs& g, Shared& shared, int tid, int x, int y) {
        run(g, shared, tid, x, y, [](auto&, int) {}, [](auto&) {});
    }
};

// The same with a second accumulator in OUTER to which the first is added every TERMS terms, as CUTLASS promotes FP8's.
template <class Atom, class A, class B, gemmsim::Cast OUTER, int TERMS, int SIDE = 64, int TILE_K = 16>
struct PromotedGemm : Gemm<Atom, A, B, SIDE, TILE_K> {
    typedef Gemm<Atom, A, B, SIDE, TILE_K> Base;
    static_assert(TERMS % TILE_K == 0);

    static GEMMSIM_HD void run(const GemmArgs& g, typename Base::Shared& shared, int tid, int x, int y) {
        using namespace cute;
        Tensor total = make_tensor<typename MMA_Traits<Atom>::ValTypeA>(
            partition_shape_C(typename Base::Mma{}, Shape<Int<Base::TILE_M>, Int<Base::TILE_N>>{}));
        clear(total);
        int done = 0;
        auto add = [&](auto& acc, int end) {
            if (end % TERMS == 0 || end >= g.k) gemmsim::promote<OUTER>(total, acc, (uint32_t)done++);
        };
        auto finish = [&](auto& acc) {
            CUTE_UNROLL
            for (int i = 0; i < size(acc); ++i) gemmsim::set_value(acc(i), total(i));
        };
        Base::run(g, shared, tid, x, y, add, finish);
    }
};
