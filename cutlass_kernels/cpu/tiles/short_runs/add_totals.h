// Sums of two registers: how partial sums of segments are combined (short_runs.h explains the kinds).
#pragma once
#include "tiles/directed/directed_kernel.h"
#include "tiles/gemm_kernel.h"

namespace gemmsim::NS {

// R(x + y) of two registers. The carrier's nearest sum, rounded again, is correct (lemma A of bounds.h). The sum is a multiple of
// the smallest quantum, so it does not underflow. Without subnormals it may underflow, but it is exact there.
// The sum of two -0 is -0. So the kinds that can have a -0 keep the sign of the sum.
// Kind SUBNORMALS does so with SIGNS only; Runs::signs_of_zeros (short_runs.h) supplies the signs where SIGNS is false.
template <class C, RunsRounding KIND, bool SIGNS> INL typename C::V combine_sums(typename C::V x, typename C::V y, const Const<C>& f) {
    const typename C::V s = x + y;
    if (KIND == RunsRounding::NATIVE) return s;
    if (KIND == RunsRounding::FLUSH) return round_flush<C>(s, f);
    if (KIND == RunsRounding::CLAMPED) return round_to<C, Rounding::FLUSH>(s, f, (typename C::VU){});
    const typename C::V r = round_to<C, Rounding::NORMAL>(s, f, (typename C::VU){});
    return KIND == RunsRounding::SUBNORMALS && SIGNS ? with_sign(r, s, f) : r;
}

// The constants by which kind DIRECTED truncates sums of two registers in one direction. The other modes have none.
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
