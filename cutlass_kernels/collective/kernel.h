// Matrix products by CUTLASS itself (sm_90a). CollectiveBuilder makes the mainloop: one warp copies by TMA into shared memory and two
// warp groups multiply by wgmma. The persistent cooperative kernel and its tile scheduler are CUTLASS' too; only the epilogue is ours.
// The terms of each line of A and B are contiguous in memory. The result is the register in binary32.
// gemmsim/backends/cuda/tensor_cores/route.py says when they run, and cutlass_mainloop.py launches them.
#pragma once
#include "collective/nvrtc.h"
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal_decl.h>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp>
#include "collective/config.h"
#include "collective/epilogue.h"
#include "gemm/tensor_cores/element_types.h"

namespace gemmsim {

// Two blocks of a cluster, one below the other, share each tile of B. A tile of 128 x 256 outputs takes 128 registers of each thread
// that multiplies. Promoted sums take as many registers again, and so their tile is half as wide.
template <CollectiveConfig K> struct CollectiveGemm {
    using A = typename ElementType<K.a>::type;
    using B = typename ElementType<K.b>::type;
    static constexpr int ALIGN_A = 16 / int(sizeof(A)), ALIGN_B = 16 / int(sizeof(B));
    static constexpr bool FP8 = sizeof(A) == 1, PROMOTED = K.promoted != 0;
    static_assert(sizeof(A) == sizeof(B) && (K.promoted == 0 || (FP8 && K.promoted % COLLECTIVE_PROMOTION == 0)));
    using TileShape = cute::Shape<cute::_128, cute::conditional_t<PROMOTED, cute::_128, cute::_256>, cute::Int<128 / int(sizeof(A))>>;
    using ClusterShape = cute::Shape<cute::_2, cute::_1, cute::_1>;
    using Schedule = cute::conditional_t<FP8 && !PROMOTED, cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8FastAccum,
                                         cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
    using Epilogue = cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<RegisterEpilogue>;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, A, cutlass::layout::RowMajor, ALIGN_A, B, cutlass::layout::ColumnMajor,
        ALIGN_B, float, TileShape, ClusterShape,
        cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::TensorStorage))>, Schedule>::CollectiveOp;
    using Problem = cute::Shape<int, int, int, int>;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>;
    using Params = typename Kernel::Params;
    static_assert(Kernel::MaxThreadsPerBlock == 384);

    // The number of bytes before CUTLASS' storage. They align its tiles to the period of their swizzle, 1024 bytes.
    static constexpr int before() { return (1024 - int(offsetof(typename Kernel::SharedStorage, tensors)) % 1024) % 1024; }

    // Every thread of the block calls this. `params` must lie in the kernel's parameters, because TMA reads its tensor maps there.
    static CUTLASS_DEVICE void run(const Params& params) {
        extern __shared__ __align__(1024) char collective_shared[];
        Kernel kernel;
        kernel(params, collective_shared + before());
    }
};

}  // namespace gemmsim
