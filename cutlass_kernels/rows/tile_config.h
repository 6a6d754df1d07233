// Row operations by blocks of threads, each with a tile of neighbouring rows (one thread an element for maps).
#pragma once
#include "gemmsim/types.h"

namespace gemmsim::rows {

// Order is mirrored by gemmsim/backends/cuda/rows.py.
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
constexpr int TILE_SITE = 64;       // step i draws at TILE_SITE + i
constexpr int TILE_MAP_PASSES = 4;  // elements of a thread

// What is known when the kernel is compiled. Tensors are contiguous, each of its own dtype; which they are for each
// operation says cpu/rows.h.
struct TileConfig {
    int32_t op, function, order;
    bool wide;            // of float64 tensors, or with formats beyond float32's range or 50 bits: every step in integers
    bool centered, weight, bias, second;  // second: a map of two arguments
    DType in[TILE_INPUTS], out[TILE_OUTPUTS];
    DType work;           // holds every exponential of a softmax
    Cast steps[TILE_STEPS];
};

// What is known when it is launched. gemmsim/backends/cuda/rows.py mirrors this record.
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
