// The host's instructions around tensor memory, in place of those in PTX.
#pragma once
#include "../../machine.h"
#include "gemmsim/device/block.h"

namespace gemmsim {
struct TensorMemoryOps {
    static void copy_scales(uint32_t to, uint64_t from) { machine::put({machine::COPY, from, 0, 0, to}); }
    static void commit(uint64_t* barrier) { machine::put({machine::COMMIT, 0, 0, 0, 0, 0, 0, barrier}); }
    static void before_sync() {}
    static void after_sync() {}
    static void warp_sync() {}
    static void barriers_made() {}
    static void zero(uint32_t at) { for (int i = 0; i < 8; ++i) machine::own(at)[i] = 0; }
    static void stored() {}
    static void read(uint32_t at, uint32_t (&to)[8]) { for (int i = 0; i < 8; ++i) to[i] = machine::own(at)[i]; }
};
}  // namespace gemmsim
