// Table of the compensated kernels of both carriers for one instruction set.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/compensated/compensated.h"

namespace gemmsim::NS {

#if ISA_DIRECTED || ISA_MODES
CompensatedFn compensated_in_modes(int carrier, int method, int kind, bool odd);
#endif

// Returns the kernel whose roundings of a step are all of one kind. `kind` is NONE, SUB, FTZ, SPECIAL, LANES, GENERAL, RANDOM, FAST or
// FAST_CLAMP. With arithmetic="fp32" (`odd` is false), kinds SUB, FAST and FAST_CLAMP do not occur.
CompensatedFn compensated(int carrier, int method, int kind, bool odd) {
#if ISA_DIRECTED || ISA_MODES
    if (kind == RANDOM || kind == FAST || kind == FAST_CLAMP) return compensated_in_modes(carrier, method, kind, odd);
#endif
    return carrier == 0 ? by_method(method, CompensatedOf<C32>{kind, odd}) : by_method(method, CompensatedOf<C64>{kind, odd});
}

}  // namespace gemmsim::NS
