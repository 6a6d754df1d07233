// Which run a configuration has.
#pragma once
#include "gemm/register_run.h"

namespace gemmsim {

template <GemmConfig K, int METHOD = K.method> struct RunOf;
template <GemmConfig K> struct RunOf<K, REGISTER> { typedef RegisterRun<K> type; };

}  // namespace gemmsim
