// The layout of a chunk's codes and scales in shared memory for the instructions of sm_100a, and the descriptors that state it.
// They are plain numbers, the same on the host. Source: PTX ISA, "tcgen05 shared memory descriptor" and "scale factors in tensor
// memory".
#pragma once
#include "gemmsim/device/carrier.h"

namespace gemmsim {

constexpr int CHUNK_LINE = 128, SCALE_COLUMNS = 4, SCALE_TILE_BYTES = 512;

// Offset of byte `at` of line `row`. A line has 128 bytes; its pieces of 16 bytes are permuted by the line's number modulo 8.
GEMMSIM_HD constexpr int chunk_place(int row, int at) { return row * CHUNK_LINE + (at ^ (row % 8 * 16)); }

// Offset of scale `column` of line `row` in a tile of 128 x 4 scales: 32 rows of 16 bytes, which tcgen05.cp spreads over lanes.
GEMMSIM_HD constexpr int scale_place(int row, int column) { return row % 32 * 16 + row / 32 * 4 + column; }

// Describes a matrix in shared memory: address and stride in units of 16 bytes, version 1, and the swizzle in the top bits.
GEMMSIM_HD constexpr uint64_t shared_descriptor(uint32_t address, uint32_t stride, uint32_t swizzle) {
    return (uint64_t)(address >> 4 & 0x3FFFu) | (uint64_t)(stride >> 4 & 0x3FFFu) << 32 | (uint64_t)1 << 46 | (uint64_t)swizzle << 61;
}
// Describes lines of 128 swizzled bytes. Eight of them are 1024 bytes.
GEMMSIM_HD constexpr uint64_t chunk_descriptor(uint32_t address) { return shared_descriptor(address, 8 * CHUNK_LINE, 2); }
// Describes a tile of scales. Eight rows of 16 bytes are 128 bytes.
GEMMSIM_HD constexpr uint64_t scale_descriptor(uint32_t address) { return shared_descriptor(address, 8 * 16, 0); }

}  // namespace gemmsim
