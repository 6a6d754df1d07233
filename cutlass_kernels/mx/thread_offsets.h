// Computes where the share of a thread starts in each tensor, for layouts that count shares over dimensions.
#pragma once
#include "mx/config.h"

namespace gemmsim {

template <MxConfig K> struct MxPlace {
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    const Src* src;
    Dst* dst;
    uint8_t *codes, *scales;
    int64_t first;  // element of the row

    // Moves to share `i`, counted in the order of a.size. A share has `elements` elements of a row. Index has 32 bits where they
    // suffice, because division is slow.
    template <class Index> GEMMSIM_HD void go_to(const MxArgs& a, Index i, int elements) {
        GEMMSIM_NO_UNROLL for (int d = a.dims - 1; d >= 0; --d) {
            const Index size = (Index)a.size[d], rest = i / size;
            const int64_t at = (int64_t)(i - rest * size);
            src += at * a.src_stride[d];
            codes += at * a.code_stride[d];
            scales += at * a.scale_stride[d];
            dst += at * a.dst_stride[d];
            if (d == a.along) first = at * elements;
            i = rest;
        }
    }

    static GEMMSIM_HD MxPlace of(const MxArgs& a, uint64_t i, int elements) {
        MxPlace place{(const Src*)a.src, (Dst*)a.dst, a.codes, a.scales, 0};
        if (a.count <= 0xFFFFFFFFull) place.go_to(a, (uint32_t)i, elements);
        else place.go_to(a, i, elements);
        return place;
    }
};

}  // namespace gemmsim
