// Which run a configuration has.
#pragma once
#include "gemm/binned_run.h"
#include "gemm/compensated_run.h"
#include "gemm/hardware_run.h"
#include "gemm/integer_run.h"
#include "gemm/long_run.h"
#include "gemm/packed_run.h"
#include "gemm/register_run.h"
#include "gemm/scaled_hardware_run.h"
#include "gemm/watched_run.h"

namespace gemmsim {

template <GemmConfig K, int WATCHED = K.watch.present> struct CompensatedRunOf {
    typedef WatchedCompensatedRun<K> type;
};
template <GemmConfig K> struct CompensatedRunOf<K, 0> {
    typedef CompensatedRun<K> type;
};
template <GemmConfig K, int METHOD = K.method> struct RunOf : CompensatedRunOf<K> {};
template <GemmConfig K, int PACKED = K.packed, int WATCHED = K.watch.present> struct PlainRunOf {
    typedef PackedRun<K> type;
};
template <GemmConfig K> struct PlainRunOf<K, 0, 0> {
    typedef RegisterRun<K> type;
};
template <GemmConfig K> struct PlainRunOf<K, 0, 1> {
    typedef WatchedRegisterRun<K> type;
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
// Scales outside of any wrapper are the instruction's own.
template <GemmConfig K, bool SCALED_BLOCKS = (K.scale_a.present || K.scale_b.present) && K.levels == 0> struct HardwareRunOf {
    typedef HardwareRun<K> type;
};
template <GemmConfig K> struct HardwareRunOf<K, true> {
    typedef ScaledHardwareRun<K> type;
};
template <GemmConfig K> struct RunOf<K, HARDWARE> : HardwareRunOf<K> {};

}  // namespace gemmsim
