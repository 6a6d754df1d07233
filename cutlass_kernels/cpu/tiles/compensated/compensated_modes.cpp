// Table of the compensated kernels that round in one direction or at random, for both carriers of one instruction set.
#include <new>
#include <stdlib.h>
#include <type_traits>
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/compensated/compensated_modes.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

// `kind` is STOCHASTIC, or DIRECTED or DIRECTED_CLAMP; for the last two `odd` is true.
CompensatedFn compensated_in_modes(int carrier, int method, Rounding kind, bool odd) {
    return carrier == 0 ? compensated_method_in_modes<C32>(method, kind, odd) : compensated_method_in_modes<C64>(method, kind, odd);
}

}  // namespace gemmsim::NS
#endif
