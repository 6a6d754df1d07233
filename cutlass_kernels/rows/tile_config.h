// Constants and arguments of row operations on CUDA. Each block of threads has a tile of neighbouring rows; maps take one thread
// per element.
#pragma once
#include "gemmsim/types.h"

namespace gemmsim::rows {

// gemmsim/backends/cuda/rows.py mirrors the order.
enum TileOp : int32_t {
    TILE_MAP = 0,
    TILE_SUM = 1,
    TILE_SOFTMAX = 2,
    TILE_LOG_SOFTMAX = 3,
    TILE_SOFTMAX_GRAD = 4,
    TILE_NORM = 5,
    TILE_NORM_GRAD = 6
};

constexpr int TILE_THREADS = 128, TILE_PARTS = 2048, TILE_STEPS = 13, TILE_INPUTS = 5, TILE_OUTPUTS = 3;
constexpr int TILE_SITE = 64;       // step i draws from stream TILE_SITE + i
constexpr int TILE_MAP_PASSES = 4;  // elements of a thread

// What is known when the kernel is compiled. Tensors are contiguous, each of its own dtype. cpu/rows/rows.h lists the tensors of
// each operation.
struct TileConfig {
    int32_t op, function, order;
    // Every step is computed in integers: for float64 tensors, or formats of more than 50 bits or beyond float32's range.
    bool wide;
    bool centered, weight, bias, second;  // second: a map of two arguments
    DType in[TILE_INPUTS], out[TILE_OUTPUTS];
    DType work;           // dtype that holds every exponential of a softmax
    Cast steps[TILE_STEPS];
};

// What is known when the kernel is launched. gemmsim/backends/cuda/rows.py mirrors this record.
struct TileArgs {
    const void* in[TILE_INPUTS];
    void* out[TILE_OUTPUTS];
    void* work;  // of softmax: rows * cols elements; may be out[0]
    int64_t rows, cols;
    uint64_t seed;
    double eps;
    int32_t tile, unused;  // rows of a block, a power of two: at most TILE_THREADS, and TILE_PARTS / order
};

}  // namespace gemmsim::rows
