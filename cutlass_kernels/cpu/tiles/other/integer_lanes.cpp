// Two's complement registers in floating-point lanes, for one instruction set.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#if ISA_AVX512 || ISA_NEON
#define INTEGER_ROWS 8
#else
#define INTEGER_ROWS 4
#endif
#include "tiles/other/integer_lanes.h"

namespace gemmsim::NS {

// panel, lanes: 0 is float, 1 is double. Double panels need double lanes.
void integers(int panel, int lanes, const Tile& t, int nr, const IntegerLanes& how) {
    if (panel == 1) integer_clamp<double, C64>(t, nr, how);
    else if (lanes == 1) integer_clamp<float, C64>(t, nr, how);
    else integer_clamp<float, C32>(t, nr, how);
}

}  // namespace gemmsim::NS
