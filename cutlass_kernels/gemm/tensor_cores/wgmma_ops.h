// The instructions of sm_90a that wgmma.h and wgmma_loader.h use: barriers in shared memory, TMA, the number of registers, and wgmma
// by CuTe's atoms. Tests on the host replace this header by a model of the chip. Source: PTX ISA, "mbarrier",
// "cp.async.bulk.tensor", "wgmma".
#pragma once
#include "gemm/tensor_cores/wgmma_config.h"
#include "gemm/tensor_cores/native_mma_atoms.h"

namespace gemmsim {

struct GroupOps {
    static GEMMSIM_HD uint32_t at(const void* shared) { return cute::cast_smem_ptr_to_uint(shared); }

    // Initialises a barrier whose phases take `count` arrivals each. All are initialised before a barrier of the block.
    static GEMMSIM_HD void make(uint64_t* barrier, int count) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(count) : "memory");
    }
    static GEMMSIM_HD void made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    static GEMMSIM_HD void arrive(uint64_t* barrier) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(barrier)) : "memory");
    }
    // Arrives at the barrier. Its phase is not complete before TMA has copied `bytes` bytes.
    static GEMMSIM_HD void expect(uint64_t* barrier, int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
    }
    // Waits until the phase of this parity is complete.
    static GEMMSIM_HD void wait(uint64_t* barrier, uint32_t parity) {
        asm volatile(
            "{\n\t.reg .pred done;\n"
            "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@done bra ready;\n\tbra again;\n"
            "ready:\n\t}" ::"r"(at(barrier)),
            "r"(parity)
            : "memory");
    }
    // Copies the box of a map that begins at byte `byte` of line `line`. TMA writes zeros for what lies outside the matrix.
    static GEMMSIM_HD void bring(uint8_t* to, const uint8_t* map, int byte, int line, int batch, uint64_t* barrier) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(at(to)),
            "l"(map), "r"(at(barrier)), "r"(byte), "r"(line), "r"(batch)
            : "memory");
    }
    template <int COUNT> static GEMMSIM_HD void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
    template <int COUNT> static GEMMSIM_HD void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
    static GEMMSIM_HD void warp_sync() { __syncwarp(); }
    // Returns whether `x` is true in any thread of the warp.
    static GEMMSIM_HD bool any(bool x) { return __any_sync(0xFFFFFFFFu, x); }
};

template <GroupConfig K> struct GroupMma {
    typedef typename ElementType<K.a>::type VA;
    typedef typename ElementType<K.b>::type VB;
    typedef typename InstructionAtom<Issue::WARP_GROUP, K.a, K.b, K.half_register>::type Atom;
    typedef cute::TiledMMA<cute::MMA_Atom<Atom>, cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>> type;
    typedef cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_N>> Tile;
    typedef decltype(cute::partition_fragment_C(type{}, Tile{})) Sums;
    static constexpr int SIZE = decltype(cute::size(Sums{}))::value;
    // This is the layout of threads and registers in a tile that `group_row` and `group_column` assume.
    static_assert(cute::is_same<typename cute::MMA_Traits<Atom>::CLayout, cute::GMMA::CLayout_64x128>::value);
    // The layout of a chunk: 128 bytes of each of 128 lines, swizzled as TMA writes them.
    template <class V> struct Chunk {
        typedef decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<V>{},
                                             cute::Shape<cute::Int<INSTRUCTION_M>, cute::Int<INSTRUCTION_LINE / sizeof(V)>>{})) type;
    };

    static GEMMSIM_HD void clear(Sums& sums) { cute::clear(sums); }
    static GEMMSIM_HD void begin(Sums& sums) {
        cute::warpgroup_fence_operand(sums);
        cute::warpgroup_arrive();
    }
    // Issues instruction `k` of a chunk and does not wait for it. `fresh`: its register starts from +0.
    static GEMMSIM_HD void issue(uint8_t* a, uint8_t* b, int tid, int k, bool fresh, Sums& sums) {
        using namespace cute;
        type mma;
        mma.accumulate_ = fresh ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
        auto own = mma.get_slice(tid);
        Tensor left = own.partition_fragment_A(make_tensor(make_smem_ptr((VA*)a), typename Chunk<VA>::type{}));
        Tensor right = own.partition_fragment_B(make_tensor(make_smem_ptr((VB*)b), typename Chunk<VB>::type{}));
        gemm(mma, left(_, _, k), right(_, _, k), sums);
    }
    static GEMMSIM_HD void commit() { cute::warpgroup_commit_batch(); }
    // Waits until at most KEPT of the thread's batches are in progress. `sums` belongs to a batch that is done.
    template <int KEPT> static GEMMSIM_HD void settle(Sums& sums) {
        cute::warpgroup_wait<KEPT>();
        cute::warpgroup_fence_operand(sums);
    }
};

}  // namespace gemmsim
