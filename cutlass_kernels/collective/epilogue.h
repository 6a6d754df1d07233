// A CUTLASS epilogue that writes the register itself (kernel.h). It has no scaling and no addend, and it writes every NaN as the
// canonical NaN of results.
#pragma once
#include "collective/nvrtc.h"
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/detail.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include "gemmsim/device/storage.h"

namespace gemmsim {

// `Sm90TmaWarpSpecializedAdapter` makes a collective epilogue of this. Each thread owns pairs of neighbouring columns. It writes a
// pair by one instruction where every row of the result starts at a multiple of 8 bytes. Four threads then fill a sector.
struct RegisterEpilogue {
    using EpilogueSchedule = cutlass::epilogue::NoSmemWarpSpecialized;
    using DispatchPolicy = EpilogueSchedule;
    using ElementAccumulator = float;
    using ElementCompute = float;
    using ElementScalar = float;
    using ElementOutput = float;
    using ElementC = void;
    using ElementD = float;
    using StrideC = cute::Stride<int64_t, cute::_1, int64_t>;
    using StrideD = StrideC;
    struct SharedStorage {};
    using TensorStorage = SharedStorage;
    // `row` and `batch` are the strides of the result in elements.
    struct Arguments {
        float* out = nullptr;
        int64_t row = 0, batch = 0;
    };
    using Params = Arguments;

    Params params;

    // CUTLASS' own host code calls these two functions of an epilogue.
    template <class Problem> static constexpr Params to_underlying_arguments(const Problem&, const Arguments& args, void*) { return args; }
    template <class Problem> static size_t get_workspace_size(const Problem&, const Arguments&) { return 0; }

    CUTLASS_HOST_DEVICE RegisterEpilogue(const Params& p) : params(p) {}
    CUTLASS_DEVICE bool is_source_needed() { return false; }

    template <class Problem, class Tile, class Place, class Engine, class Layout, class Mma, class Rest>
    CUTLASS_DEVICE void operator()(Problem problem, Tile tile, Place place, const cute::Tensor<Engine, Layout>& sums, Mma mma, Rest,
                                   int thread, char*) {
        using namespace cute;
        const int m = get<0>(problem), n = get<1>(problem);
        const int row0 = int(get<0>(place)) * int(size<0>(tile)), col0 = int(get<1>(place)) * int(size<1>(tile));
        auto own = mma.get_thread_slice(thread).partition_C(make_identity_tensor(take<0, 2>(tile)));
        float* const out = params.out + int64_t(get<3>(place)) * params.batch;
        const bool pairs = ((params.row | params.batch) & 1) == 0 && (reinterpret_cast<uint64_t>(params.out) & 7) == 0;
        static_assert(decltype(size(sums))::value % 2 == 0);
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < int(size(sums)); i += 2) {
            const int row = row0 + int(get<0>(own(i))), col = col0 + int(get<1>(own(i)));
            if (row >= m || col >= n) continue;
            float* const at = out + row * params.row + col;
            const float left = store_value<F32>(sums(i)), right = store_value<F32>(sums(i + 1));
            if (pairs && col + 1 < n) {
                *reinterpret_cast<float2*>(at) = float2{left, right};
            } else {
                at[0] = left;
                if (col + 1 < n) at[1] = right;
            }
        }
    }
};

}  // namespace gemmsim
