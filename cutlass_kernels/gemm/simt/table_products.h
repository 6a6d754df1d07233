// Products that are looked up: entry (x, y) of a table for the codes x and y of a term's factors.
#pragma once
#include "gemm/simt/steps.h"

namespace gemmsim {

// Entries of 16 bits are whole; what is no number is NOT_SHORT there, and NOT_WHOLE among those of 32 bits.
constexpr int32_t NOT_SHORT = -0x8000;

// What a stream does with a term's factors: nothing; or it takes them for codes. Entries are read in global memory, through
// the cache of data that nothing writes, or in a copy of the block's own.
template <GemmConfig K, bool LOOKED_UP = K.table.columns != 0> struct Products {
    static constexpr unsigned TABLE_BYTES = 0;
    template <class X> GEMMSIM_HD X left(X a) const { return a; }
    template <class X> GEMMSIM_HD X right(X, X b) const { return b; }
};

template <GemmConfig K> struct Products<K, true> {
    typedef typename Steps<K>::T T;
    typedef typename Steps<K>::template Pick<T, int32_t, SmallIntegers<K>::POSSIBLE>::type Number;  // of a product
    typedef typename Storage<K.table.dtype>::Word Entry;
    static_assert(K.table.dtype != I16 || SmallIntegers<K>::POSSIBLE);
    static constexpr unsigned TABLE_BYTES = K.table.shared ? (K.table.entries * sizeof(Entry) + 15) / 16 * 16 : 0;

    const Entry* entries;

    // The block's copy, for a block that meets at a barrier next.
    static GEMMSIM_HD void copy(const void* from, uint8_t* to, int tid) {
        GEMMSIM_NO_UNROLL for (int i = tid; i < K.table.entries; i += gemm_threads(K))((Entry*)to)[i] = ((const Entry*)from)[i];
    }

    // A term's factors: 1 and the product.
    GEMMSIM_HD Number left(int32_t) const { return (Number)1; }
    GEMMSIM_HD Number right(int32_t a, int32_t b) const {
        const Entry x = read(entries + (uint32_t)(a * K.table.columns + b));
        if constexpr (K.table.dtype == I16) return x == NOT_SHORT ? (Number)NOT_WHOLE : (Number)x;
        else return (Number)x;
    }

private:
    static GEMMSIM_HD Entry read(const Entry* at) {
#if defined(__CUDA_ARCH__)
        if constexpr (!K.table.shared) return __ldg(at);
#endif
        return *at;
    }
};

}  // namespace gemmsim
