// Steps of matrix instructions for one ISA.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "hardware.h"

namespace gemmsim { namespace NS {

void hardware(const Tile& t, const HardwareModel& m, bool wide_lanes) { hardware_tile(t, m, wide_lanes); }

}}  // namespace gemmsim::NS
