// Rounds one value to any Cast, by the cheapest exact way. R is the draw of a stochastic mode.
#pragma once
#include "gemmsim/device/round.h"
#include "gemmsim/exact.h"

namespace gemmsim {

// Whether round_cast takes 128-bit integers: for irregular value sets, ties that depend on codes, and formats wider than float64's
// exponents. For elements of tensors, round_grid.h handles most of these.
GEMMSIM_HD constexpr bool needs_exact(const Cast& c) { return !carrier_rounds<double>(c); }

// Returns the result in float or double, whichever computed it.
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
