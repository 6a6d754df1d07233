// Sums of two registers: how totals of runs meet (short_runs.h has the kinds).
#pragma once
#include "tiles/directed/directed_kernel.h"
#include "tiles/gemm_kernel.h"

namespace gemmsim::NS {

// A sum of two registers: the carrier's nearest sum, rounded, is right (lemma A of kernel_choice.h), and being a multiple of the
// smallest quantum it does not underflow; without subnormals it may, and is exact there. Its sign stays where there is a -0,
// since -0 is the sum of two -0. Without SIGNS of zeros, see Runs::signs_of_zeros.
template <class C, int KIND, bool SIGNS> INL typename C::V combine_sums(typename C::V x, typename C::V y, const Const<C>& f) {
    const typename C::V s = x + y;
    if (KIND == NONE) return s;
    if (KIND == FTZ) return round_flush<C>(s, f);
    if (KIND == SPECIAL) return round_to<C, FTZ>(s, f, (typename C::VU){});
    const typename C::V r = round_to<C, PLAIN>(s, f, (typename C::VU){});
    return KIND == SUB && SIGNS ? with_sign(r, s, f) : r;
}

// What sums of two registers are cut by in one direction, of kind FAST.
template <class C, int MODE> struct TotalTruncation {
    TotalTruncation(const Const<C>&, int) {}
};
#if ISA_DIRECTED || ISA_MODES
template <class C, int MODE> struct DirectedTotalTruncation : Truncation<C> {
    using Truncation<C>::Truncation;
    INL_MEMBER typename C::V sum(typename C::V x, typename C::V y) const {
        return plus_zero<C, MODE>(this->template round<MODE>(add_directed<C, MODE>(x, y), typename C::VU{}));
    }
};
template <class C> struct TotalTruncation<C, RTZ> : DirectedTotalTruncation<C, RTZ> {
    using DirectedTotalTruncation<C, RTZ>::DirectedTotalTruncation;
};
template <class C> struct TotalTruncation<C, RU> : DirectedTotalTruncation<C, RU> {
    using DirectedTotalTruncation<C, RU>::DirectedTotalTruncation;
};
template <class C> struct TotalTruncation<C, RD> : DirectedTotalTruncation<C, RD> {
    using DirectedTotalTruncation<C, RD>::DirectedTotalTruncation;
};
#endif

}  // namespace gemmsim::NS
