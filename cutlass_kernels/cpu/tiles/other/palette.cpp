// Palette kernels of both carriers for one instruction set.
#include "vec.h"
#if ISA_AVX512
#define ISA_BLOCK(kind) ((kind) <= Rounding::OVERFLOWS ? 8 : 4)
#elif ISA_AVX2 || ISA_NEON
#define ISA_BLOCK(kind) ((kind) <= Rounding::OVERFLOWS ? 4 : 2)
#else
#define ISA_BLOCK(kind) 2
#endif
#include "tiles/other/palette_kernel.h"

namespace gemmsim::NS {

// `carrier`: 0 is float lanes, 1 is double lanes.
bool palette(int carrier, const PaletteTile& t) { return carrier == 0 ? tile_lanes_step<C32>(t) : tile_lanes_step<C64>(t); }

}  // namespace gemmsim::NS
