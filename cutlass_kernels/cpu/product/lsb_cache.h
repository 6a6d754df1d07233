// This file stores the lowest bits of the terms of packed panels, one byte each, behind the panels (Isa::lowest_bits).
#pragma once
#include <string.h>
#include "product/kernel_choice.h"

namespace gemmsim {

struct LowestBits {
    const Isa& isa;
    const Request& r;
    const bool kept;  // register and shape are such that the bytes may help

    LowestBits(const Isa& i, const Request& request, int64_t rows, bool floats)
        : isa(i), r(request), kept(floats && isa.lowest_bits && rows >= LEAST_ROWS_FOR_LOWEST_BITS && lowest_bits_help(request)) {}

    // Kernels read whole vectors of bytes, so there is room for one more vector.
    size_t bytes(int64_t panels) const { return kept ? (size_t)(panels * r.k) + 64 : 0; }
    // The bytes lie behind `panels` panels of `width` numbers a term.
    template <class T> uint8_t* behind(const T* packed, int64_t panels, int64_t width) const {
        return (uint8_t*)(packed + panels * r.k * width);
    }

    void of_panels(const void* packed, int64_t count, int width, uint8_t* low) const {
        for (int64_t p = 0; p < count; ++p) isa.lowest_bits((const float*)packed + p * r.k * width, r.k, width, low + p * r.k);
    }
    // `stats` covers these panels of B, or more. Products of numbers with few bits lead to midpoints anyway.
    void of_b(const void* packed, int64_t count, int nr, const Stats& stats, uint8_t* low) const {
        if (stats.width <= MOST_BITS_WITH_MIDPOINTS) memset(low, 0xFF, (size_t)(count * r.k));
        else of_panels(packed, count, nr, low);
    }
    // Whether few terms of two panels may lead to midpoints.
    bool few_midpoints(const uint8_t* a, const uint8_t* b) const {
        const int from = midpoints_from(r.add);
        int64_t fallback = 0;
        for (int64_t k = 0; k < r.k; ++k) fallback += a[k] + b[k] >= from;
        return RARE_MIDPOINTS * fallback <= r.k;
    }
    void give(Tile& t, const uint8_t* a, const uint8_t* b) const {
        t.low_a = a;
        t.low_b = b;
        t.midpoints_from = midpoints_from(r.add);
    }
};

}  // namespace gemmsim
