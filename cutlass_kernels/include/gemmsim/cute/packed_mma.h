// An atom of two outputs in one register of 32 bits: binary16 or bfloat16, rounded by the instruction itself.
#pragma once
#include "gemmsim/cute/step_mma.h"
#include "gemmsim/device/packed.h"

namespace gemmsim {

// (d0, d1) = (R(c0 + a b0), R(c1 + a b1)). R rounds to nearest even in the numbers' own format, with infinities, subnormals and
// signed zeros. The sign and payload of a NaN are not defined.
template <class X> struct PackedMma {
    static constexpr DType DTYPE = cute::is_same_v<X, cutlass::half_t> ? F16 : BF16;
    static_assert(cute::is_same_v<X, cutlass::half_t> || cute::is_same_v<X, cutlass::bfloat16_t>);

    using DRegisters = uint32_t[1];
    using ARegisters = uint16_t[1];
    using BRegisters = uint32_t[1];
    using CRegisters = uint32_t[1];

    CUTE_HOST_DEVICE static void fma(uint32_t& d, const uint16_t& a, const uint32_t& b, const uint32_t& c) {
        d = fma_pair<DTYPE>(Twice<DTYPE>::of(a).word, b, c);
    }
};

}  // namespace gemmsim

namespace cute {

template <class X> struct MMA_Traits<gemmsim::PackedMma<X>> : gemmsim::ScalarTraits<X, X, X, 2, 1> {};

}  // namespace cute
