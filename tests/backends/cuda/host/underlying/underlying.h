// What CUTLASS' own host code makes of the arguments of a product by gemmsim::CollectiveGemm: the record that its kernel
// reads, the grid, and what it asks the driver to encode as tensor maps.
#pragma once
#include "collective/nvrtc.h"
#include "collective/kernel.h"

namespace underlying {

struct Map {
    uint64_t type, rank, address, sizes[5], strides[5], box[5], steps[5], modes[4];
};
struct Found {
    uint64_t grid[3], bytes, maps;
    Map map[2];
    unsigned char record[4096];
};
struct Asked {
    int64_t m, n, k, batch, a, b, out, line_a, line_b, batch_a, batch_b, row, batch_out, processors, swizzle;  // strides in elements
};
static Found* current;

template <class G> void fill(const Asked& asked, Found& found) {
    using namespace cute;
    using Kernel = typename G::Kernel;
    typename Kernel::Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    args.problem_shape = {int(asked.m), int(asked.n), int(asked.k), int(asked.batch)};
    args.mainloop.ptr_A = reinterpret_cast<const typename G::A*>(asked.a);
    args.mainloop.ptr_B = reinterpret_cast<const typename G::B*>(asked.b);
    get<0>(args.mainloop.dA) = asked.line_a, get<2>(args.mainloop.dA) = asked.batch_a;
    get<0>(args.mainloop.dB) = asked.line_b, get<2>(args.mainloop.dB) = asked.batch_b;
    args.epilogue = {reinterpret_cast<float*>(asked.out), asked.row, asked.batch_out};
    args.hw_info.sm_count = int(asked.processors);
    args.scheduler.max_swizzle_size = int(asked.swizzle);
    found = {};
    current = &found;
    const auto params = Kernel::to_underlying_arguments(args, nullptr);
    const dim3 grid = Kernel::get_grid_shape(params);
    found.grid[0] = grid.x, found.grid[1] = grid.y, found.grid[2] = grid.z;
    found.bytes = sizeof(params);
    static_assert(sizeof(params) <= sizeof(found.record));
    memcpy(found.record, &params, sizeof(params));
}

// The epilogue of one tile by every thread that multiplies, each with the sums that wgmma leaves in its registers: place `i` of
// thread `t` of a warp group is row t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8 and column t % 4 * 2 + i % 2 + i / 4 * 8 of its 64 rows
// (PTX ISA 9.0, 9.7.15.5.1.1, matrix fragments for D). The number at row r and column c of the tile is 1024 r + c.
template <class G> void epilogue(float* out, int m, int n, int64_t row, int along_m, int along_n, int batch, int64_t step) {
    using namespace cute;
    using Mma = typename G::Mainloop::TiledMma;
    typename G::TileShape tile{};
    auto sums = partition_fragment_C(Mma{}, take<0, 2>(tile));
    gemmsim::RegisterEpilogue own{{out, row, step}};
    for (int thread = 0; thread < int(size(Mma{})); ++thread) {
        const int group = thread / 128, t = thread % 128;
        for (int i = 0; i < int(size(sums)); ++i) {
            const int r = group * 64 + t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, c = t % 4 * 2 + i % 2 + i / 4 * 8;
            sums(i) = float(1024 * r + c);
        }
        own(make_shape(m, n, 1, 1), tile, make_coord(along_m, along_n, _, batch), sums, Mma{}, 0, thread, nullptr);
    }
}

}  // namespace underlying

extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                           const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                           const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                           CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    auto& found = *underlying::current;
    underlying::Map& one = found.map[found.maps++];
    one.type = type, one.rank = rank, one.address = uint64_t(address);
    for (cuuint32_t i = 0; i < rank; ++i) {
        one.sizes[i] = sizes[i], one.box[i] = box[i], one.steps[i] = steps[i];
        if (i + 1 < rank) one.strides[i] = strides[i];
    }
    one.modes[0] = interleave, one.modes[1] = swizzle, one.modes[2] = promotion, one.modes[3] = fill;
    memset(map, int(found.maps), sizeof(*map));
    return CUDA_SUCCESS;
}

// Asked where the number of processors is not given, which it is.
extern "C" cudaError_t cudaGetDevice(int*) { abort(); }
extern "C" cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { abort(); }
extern "C" cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { abort(); }
extern "C" cudaError_t cudaGetLastError() { abort(); }
