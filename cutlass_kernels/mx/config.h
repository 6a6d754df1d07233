// Conversions to and from block formats: what is known when a kernel is compiled, and when it is launched.
#pragma once
#include "mx/element.h"

namespace gemmsim {

constexpr int MX_THREADS = 256, MX_COLUMN_THREADS = 64, MX_DIMS = 17, MX_LOG2_STEPS = 320;

enum class MxOp : int32_t { ENCODE, DECODE, QUANTIZE };
// How codes lie in bytes: one per byte; two, the first in the low or in the high half; or four of 6 bits in three bytes.
enum class Packing : int32_t { BYTES, LOW_FIRST, HIGH_FIRST, DENSE };
// WHOLE: complete blocks follow each other in memory. COLUMNS: the rows of neighbouring blocks do, in aligned words. ANY:
// everything else.
enum class MxLayout : int32_t { WHOLE, COLUMNS, ANY };

struct MxConfig {
    MxOp op;
    // Types of the float tensors. An operation without one of them has the other's type in both.
    DType src, dst;
    Packing packing;
    MxLayout layout;
    MxFormat format;
};

// gemmsim/backends/cuda/casts/mx_cast.py mirrors this record. Offsets and strides count elements; those of packed codes count
// bytes.
struct MxArgs {
    const void* src;
    uint8_t *codes, *scales;
    void* dst;
    const float* second;    // the tensor's scale, on the device; null: second_value
    uint64_t count;         // elements (WHOLE), or threads' shares of whole blocks
    int64_t k;              // elements of a row (not WHOLE)
    float second_value;
    int32_t dims, along;    // dimensions of the shares; the one along the row
    int32_t reserved;
    int64_t src_step, code_step, scale_step, dst_step;  // along a row
    int64_t size[MX_DIMS], src_stride[MX_DIMS], code_stride[MX_DIMS], scale_stride[MX_DIMS], dst_stride[MX_DIMS];
    int32_t log2_from[MX_LOG2_STEPS];  // for formats whose rule takes a rounded logarithm
};

template <DType D> GEMMSIM_HD float load_float(typename Storage<D>::Word w) {
    if constexpr (D == F64) return to_odd(w);  // the rounding of elements stays the only one
    else return load_value<D, float>(w);
}

GEMMSIM_HD float second_scale(const MxArgs& a) { return a.second ? *a.second : a.second_value; }

// Bits of a code in memory, and the number of codes that share bytes.
GEMMSIM_HD constexpr int code_width(Packing p) { return p == Packing::BYTES ? 8 : p == Packing::DENSE ? 6 : 4; }
GEMMSIM_HD constexpr int code_unit(Packing p) { return p == Packing::BYTES ? 1 : p == Packing::DENSE ? 4 : 2; }
// The first bit of code `j` of a unit in its bytes, little-endian.
GEMMSIM_HD constexpr int code_shift(Packing p, int j) { return code_width(p) * (p == Packing::HIGH_FIRST ? j ^ 1 : j); }

}  // namespace gemmsim
