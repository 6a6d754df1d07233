// Compensated kernels of both carriers for one ISA.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/compensated.h"

namespace gemmsim::NS {

// All roundings of the step by one kind: NONE, SUB or GENERAL; arithmetic="fp32" (not `odd`) has no SUB.
CompensatedFn compensated(int carrier, int method, int kind, bool odd) {
    return carrier == 0 ? compensated_method<C32>(method, kind, odd) : compensated_method<C64>(method, kind, odd);
}

}  // namespace gemmsim::NS
