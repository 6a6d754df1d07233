// One value to any Cast there is, by the cheapest way that is exact. R is the draw of a stochastic mode.
#pragma once
#include "gemmsim/device/round.h"
#include "gemmsim/exact.h"

namespace gemmsim {

// Whether round_cast goes by 128-bit integers (grids of their own, ties that look at codes, formats wider than float64's exponents).
// round_grid.h knows most of these for elements of tensors.
GEMMSIM_HD constexpr bool needs_exact(const Cast& c) { return !carrier_rounds<double>(c); }

// The result in float or double, whichever was computed in.
template <Cast C, class T> GEMMSIM_HD auto round_cast(T x, uint32_t R) {
    if constexpr (magic_rounds<T>(C)) {
        return MagicCast<T, C>::apply(x);
    } else if constexpr (stochastic_rounds<T>(C)) {
        return StochasticCast<T, C>::apply(x, R);
    } else if constexpr (carrier_rounds<T>(C)) {
        return round_bits<T, C>(x, R);
    } else if constexpr (carrier_rounds<double>(C)) {
        return round_bits<double, C>((double)x, R);
    } else {
        constexpr Cast c = C;
        return round_value((double)x, c, R);
    }
}

}  // namespace gemmsim
