// Converts tensors to block formats and back in one pass: to codes and scales, to the values of codes, or to the values that
// encoding and decoding give (fake quantisation).
#pragma once
#include "mx/strided.h"
#include "mx/columns.h"
#include "mx/contiguous.h"

namespace gemmsim {

// Thread `tid` of block `block`. A block has MX_THREADS packs times WholeBlocks<K>::PACKS, MX_THREADS shares of AnyBlocks<K>, or
// MX_COLUMN_THREADS shares of ColumnBlocks<K>.
template <MxConfig K> GEMMSIM_HD void mx_body(const MxArgs& a, uint32_t tid, uint64_t block) {
    if constexpr (K.layout == MxLayout::WHOLE) WholeBlocks<K>::run(a, tid, block);
    else if constexpr (K.layout == MxLayout::COLUMNS) ColumnBlocks<K>::run(a, block * MX_COLUMN_THREADS + tid);
    else AnyBlocks<K>::run(a, block * MX_THREADS + tid);
}

}  // namespace gemmsim
