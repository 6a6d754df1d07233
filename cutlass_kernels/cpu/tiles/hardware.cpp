// Steps of matrix instructions for one ISA.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/hardware_long.h"

namespace gemmsim::NS {

void hardware(const Tile& t, const HardwareModel& m, bool wide_lanes) {
    if (m.kind == HW_TREE) return m.flush ? tree_steps<true>(t, m) : tree_steps<false>(t, m);
    if (m.kind == HW_GROUPS) return group_steps(t, m);
    if (m.kind == HW_FUSED && m.kept > KEPT_IN_DOUBLE) return long_steps(t, m);
    if (wide_lanes) block_steps<true>(t, m);
    else block_steps<false>(t, m);
}

}  // namespace gemmsim::NS
