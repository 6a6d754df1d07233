// Compensated kernels of rounding in one direction or at random, of both carriers for one ISA.
#include <new>
#include <stdlib.h>
#include <type_traits>
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/compensated/compensated_modes.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

// `kind`: FAST or FAST_CLAMP, which are `odd`, or RANDOM.
CompensatedFn compensated_in_modes(int carrier, int method, int kind, bool odd) {
    return carrier == 0 ? compensated_method_in_modes<C32>(method, kind, odd) : compensated_method_in_modes<C64>(method, kind, odd);
}

}  // namespace gemmsim::NS
#endif
