// Compensated kernels of both carriers for one ISA.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "compensated.h"

namespace gemmsim::NS {

// All roundings of the step by one kind: NONE, SUB or GENERAL; arithmetic="fp32" (not `odd`) has no SUB.
CompensatedFn compensated(int carrier, int method, int kind, bool odd, bool mul) {
    return carrier == 0 ? compensated_method<C32>(method, kind, odd, mul) : compensated_method<C64>(method, kind, odd, mul);
}

}  // namespace gemmsim::NS
