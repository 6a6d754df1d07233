// Tensors to block formats and back: codes and scales, values of codes, or both at once (fake quantisation), in one pass.
#pragma once
#include "mx/any.h"
#include "mx/whole.h"

namespace gemmsim {

// Thread `tid` of block `block`: MX_THREADS packs times WholeBlocks<K>::PACKS, or MX_THREADS shares of AnyBlocks<K>.
template <MxConfig K> GEMMSIM_HD void mx_body(const MxArgs& a, uint32_t tid, uint64_t block) {
    if constexpr (K.layout == MxLayout::WHOLE) {
        WholeBlocks<K>::run(a, tid, block);
    } else {
        const uint64_t i = block * MX_THREADS + tid;
        if (i >= a.count) return;
        if (a.count <= 0xFFFFFFFFull) AnyBlocks<K>::template run<uint32_t>(a, (uint32_t)i);
        else AnyBlocks<K>::template run<uint64_t>(a, i);
    }
}

}  // namespace gemmsim
