// The offsets of the members of a kernel's parameters (kernel.h), as numbers in the machine code. No host compiler ever sees these
// types. The host fills in the parameters by offsets of its own and compares them with these numbers:
// gemmsim/backends/cuda/tensor_cores/cutlass_params.py lists them in the same order.
#pragma once
#include "collective/kernel.h"

namespace gemmsim {

constexpr int COLLECTIVE_LAYOUT = 53;
struct CollectiveLayout {
    uint32_t word[COLLECTIVE_LAYOUT];
};

template <class T> struct BoxOf;  // for a tiled copy by TMA: terms and lines of the box that one block's instruction copies
template <class Atom, class Layout, class Tiler> struct BoxOf<cute::TiledCopy<Atom, Layout, Tiler>> {
    using Traits = typename Atom::Traits;
    using Basis = typename Traits::AuxParams::TmaGmemBasis;
    static constexpr uint32_t RANK = uint32_t(decltype(cute::rank(Basis{}))::value);
    static constexpr uint32_t TERMS = uint32_t(decltype(cute::size<0>(Basis{}))::value);
    static constexpr uint32_t LINES = uint32_t(decltype(cute::size<1>(Basis{}))::value);
    static constexpr uint32_t BYTES = uint32_t(decltype(cute::size<1>(typename Traits::SrcLayout{}))::value) / 8;
};

template <class G> constexpr CollectiveLayout collective_layout() {
    using Kernel = typename G::Kernel;
    using Params = typename Kernel::Params;
    using Main = typename Kernel::MainloopParams;
    using Out = typename Kernel::EpilogueParams;
    using Tiles = typename Kernel::TileSchedulerParams;
    using Hardware = cutlass::KernelHardwareInfo;
    using Divide = cutlass::FastDivmodU64;
    using Shift = cutlass::FastDivmodU64Pow2;
    using BoxA = BoxOf<typename Main::TMA_A>;
    using BoxB = BoxOf<typename Main::TMA_B>;
    const uint32_t mainloop = offsetof(Params, mainloop), epilogue = offsetof(Params, epilogue), tiles = offsetof(Params, scheduler);
    const uint32_t hardware = offsetof(Params, hw_info);
    uint32_t promotion = 0;
    if constexpr (G::PROMOTED) promotion = mainloop + uint32_t(offsetof(Main, mma_promotion_interval));
    return {{
        // The record. The offsets of its members count from its start.
        uint32_t(sizeof(Params)),
        uint32_t(alignof(Params)),
        uint32_t(offsetof(Params, mode)),
        uint32_t(offsetof(Params, problem_shape)),
        uint32_t(sizeof(typename G::Problem)),
        mainloop,
        mainloop + uint32_t(offsetof(Main, tma_load_a)),
        mainloop + uint32_t(offsetof(Main, tma_load_b)),
        uint32_t(sizeof(typename Main::TMA_A)),
        mainloop + uint32_t(offsetof(Main, tma_transaction_bytes)),
        mainloop + uint32_t(offsetof(Main, tma_transaction_bytes_mk)),
        mainloop + uint32_t(offsetof(Main, tma_transaction_bytes_nk)),
        promotion,
        uint32_t(sizeof(Main)),
        epilogue + uint32_t(offsetof(Out, out)),
        epilogue + uint32_t(offsetof(Out, row)),
        epilogue + uint32_t(offsetof(Out, batch)),
        hardware + uint32_t(offsetof(Hardware, device_id)),
        hardware + uint32_t(offsetof(Hardware, sm_count)),
        hardware + uint32_t(offsetof(Hardware, max_active_clusters)),
        tiles + uint32_t(offsetof(Tiles, divmod_cluster_shape_major_)),
        tiles + uint32_t(offsetof(Tiles, divmod_cluster_shape_minor_)),
        tiles + uint32_t(offsetof(Tiles, divmod_batch_)),
        tiles + uint32_t(offsetof(Tiles, divmod_cluster_blk_major_)),
        tiles + uint32_t(offsetof(Tiles, blocks_per_problem_)),
        tiles + uint32_t(offsetof(Tiles, log_swizzle_size_)),
        tiles + uint32_t(offsetof(Tiles, raster_order_)),
        tiles + uint32_t(offsetof(Tiles, problem_tiles_m_)),
        tiles + uint32_t(offsetof(Tiles, problem_tiles_n_)),
        tiles + uint32_t(offsetof(Tiles, problem_tiles_l_)),
        tiles + uint32_t(offsetof(Tiles, cluster_shape_m_)),
        tiles + uint32_t(offsetof(Tiles, cluster_shape_n_)),
        uint32_t(offsetof(Params, workspace)),
        // The records for a division by a multiplication, and for a division by a shift.
        uint32_t(sizeof(Divide)),
        uint32_t(offsetof(Divide, multiplier)),
        uint32_t(offsetof(Divide, shift_right)),
        uint32_t(offsetof(Divide, round_up)),
        uint32_t(sizeof(Shift)),
        uint32_t(offsetof(Shift, shift_right)),
        // What a launch needs.
        uint32_t(G::before() + Kernel::SharedStorageSize),
        uint32_t(G::Mainloop::DispatchPolicy::Stages),
        uint32_t(cutlass::gemm::GemmUniversalMode::kGemm),
        uint32_t(Tiles::RasterOrder::AlongM),
        uint32_t(Tiles::RasterOrder::AlongN),
        // The boxes of the two tensor maps, before the blocks of a cluster share them. Then the number of bytes that a block copies.
        BoxA::RANK,
        BoxA::TERMS,
        BoxA::LINES,
        BoxA::BYTES,
        BoxB::RANK,
        BoxB::TERMS,
        BoxB::LINES,
        BoxB::BYTES,
        uint32_t(G::Mainloop::TmaTransactionBytes),
    }};
}

}  // namespace gemmsim
