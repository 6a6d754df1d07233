// Table of the compensated kernels of both carriers for one instruction set.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/compensated/compensated.h"

namespace gemmsim::NS {

#if ISA_DIRECTED || ISA_MODES
CompensatedFn compensated_in_modes(int carrier, int method, Rounding kind, bool odd);
#endif

// Returns the kernel whose roundings of a step are all of one kind. With arithmetic="fp32" (`odd` is false), kinds SUBNORMALS, DIRECTED and
// DIRECTED_CLAMP do not occur.
CompensatedFn compensated(int carrier, int method, CompensatedRounding how, bool odd) {
    const Rounding kind = how.kind;
#if ISA_DIRECTED || ISA_MODES
    if (kind == Rounding::STOCHASTIC || kind == Rounding::DIRECTED || kind == Rounding::DIRECTED_CLAMP)
        return compensated_in_modes(carrier, method, kind, odd);
#endif
    return carrier == 0 ? compensated_method<C32>(method, how, odd) : compensated_method<C64>(method, how, odd);
}

}  // namespace gemmsim::NS
