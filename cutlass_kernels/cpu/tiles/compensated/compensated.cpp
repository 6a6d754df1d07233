// Compensated kernels of both carriers for one ISA.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/compensated/compensated.h"

namespace gemmsim::NS {

#if ISA_DIRECTED || ISA_MODES
CompensatedFn compensated_in_modes(int carrier, int method, int kind, bool odd);
#endif

// All roundings of the step by one kind: NONE, SUB, GENERAL, RANDOM, FAST or FAST_CLAMP; arithmetic="fp32" (not `odd`) has no SUB and none of the last two.
CompensatedFn compensated(int carrier, int method, int kind, bool odd) {
#if ISA_DIRECTED || ISA_MODES
    if (kind == RANDOM || kind == FAST || kind == FAST_CLAMP) return compensated_in_modes(carrier, method, kind, odd);
#endif
    return carrier == 0 ? compensated_method<C32>(method, kind, odd) : compensated_method<C64>(method, kind, odd);
}

}  // namespace gemmsim::NS
