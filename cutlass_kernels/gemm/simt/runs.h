// Maps a configuration to its run: RunOf<K>::type. simt.h uses it.
#pragma once
#include "gemm/simt/binned_run.h"
#include "gemm/simt/compensated_run.h"
#include "gemm/simt/matrix_unit_run.h"
#include "gemm/simt/integer_run.h"
#include "gemm/simt/kulisch_run.h"
#include "gemm/simt/packed_run.h"
#include "gemm/simt/register_run.h"
#include "gemm/simt/scaled_matrix_unit_run.h"
#include "gemm/simt/count_events_run.h"

namespace gemmsim {

template <GemmConfig K, int COUNTED = K.counted.present> struct CompensatedRunOf {
    typedef CountedCompensatedRun<K> type;
};
template <GemmConfig K> struct CompensatedRunOf<K, 0> {
    typedef CompensatedRun<K> type;
};
template <GemmConfig K, int METHOD = K.method> struct RunOf : CompensatedRunOf<K> {};
template <GemmConfig K, int PACKED = K.packed, int COUNTED = K.counted.present> struct PlainRunOf {
    typedef PackedRun<K> type;
};
template <GemmConfig K> struct PlainRunOf<K, 0, 0> {
    typedef RegisterRun<K> type;
};
template <GemmConfig K> struct PlainRunOf<K, 0, 1> {
    typedef CountedRegisterRun<K> type;
};
template <GemmConfig K> struct RunOf<K, REGISTER> : PlainRunOf<K> {};
template <GemmConfig K> struct RunOf<K, LONG> {
    typedef LongRun<K> type;
};
template <GemmConfig K> struct RunOf<K, INTEGER> {
    typedef IntegerRun<K> type;
};
template <GemmConfig K> struct RunOf<K, FIXED> {
    typedef IntegerRun<K> type;
};
template <GemmConfig K> struct RunOf<K, BINNED> {
    typedef BinnedRun<K> type;
};
// If there are scales but no wrapper, the scales are operands of the instruction itself.
template <GemmConfig K, bool SCALED_BLOCKS = (K.scale_a.present || K.scale_b.present) && K.levels == 0> struct HardwareRunOf {
    typedef HardwareRun<K> type;
};
template <GemmConfig K> struct HardwareRunOf<K, true> {
    typedef ScaledHardwareRun<K> type;
};
template <GemmConfig K> struct RunOf<K, HARDWARE> : HardwareRunOf<K> {};

}  // namespace gemmsim
