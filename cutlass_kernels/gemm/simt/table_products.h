// Products that are looked up in a table: the product of factors with codes x and y is entry (x, y). GemmConfig::table selects them.
#pragma once
#include "gemm/simt/steps.h"

namespace gemmsim {

// Integer entries have 16 or 32 bits. NaN is NOT_SHORT among entries of 16 bits and NOT_WHOLE among those of 32 bits.
constexpr int32_t NOT_SHORT = -0x8000;

// Converts the elements of panels to factors. Without a table it does nothing. With a table, elements are codes. Entries are read from
// global memory through the read-only cache, or from the block's own copy in shared memory.
template <GemmConfig K, bool LOOKED_UP = K.table.columns != 0> struct Products {
    static constexpr unsigned TABLE_BYTES = 0;
    template <class X> GEMMSIM_HD X left(X a) const { return a; }
    template <class X> GEMMSIM_HD X right(X, X b) const { return b; }
};

template <GemmConfig K> struct Products<K, true> {
    typedef typename Steps<K>::T T;
    typedef typename Steps<K>::template Pick<T, int32_t, SmallIntegers<K>::POSSIBLE>::type Number;  // type of a product
    typedef typename Storage<K.table.dtype>::Word Entry;
    static_assert(K.table.dtype != I16 || SmallIntegers<K>::POSSIBLE);
    static constexpr unsigned TABLE_BYTES = K.table.shared ? (K.table.entries * sizeof(Entry) + 15) / 16 * 16 : 0;

    const Entry* entries;

    // Copies the table to the block's shared memory. A barrier must follow before a thread reads it.
    static GEMMSIM_HD void copy(const void* from, uint8_t* to, int tid) {
        GEMMSIM_NO_UNROLL for (int i = tid; i < K.table.entries; i += gemm_threads(K))((Entry*)to)[i] = ((const Entry*)from)[i];
    }

    // Returns a term's factors: 1 and the product.
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
