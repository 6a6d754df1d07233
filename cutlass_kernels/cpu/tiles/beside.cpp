// Tiles side by side of one ISA: where there are sixteen registers.
#include "vec.h"
#if ISA_AVX2
#include "tiles/beside.h"
#endif
#if ISA_AVX2 || ISA_AVX512
#define ISA_BLOCK(kind) 4
#include "tiles/sunk.h"

namespace gemmsim::NS {

#if ISA_AVX2
template <int KIND> static bool beside_of(const Tile& t, const Beside& how) {
    return how.panels == 1 ? tiles_beside<1, KIND>(t, how.tiles, how.sink) : tiles_beside<2, KIND>(t, how.tiles, how.sink);
}

bool beside(const Tile& t, Beside& how) {
    if (how.way == Beside::CUT) return cut_beside(t, how);
    if (how.kind == NONE) return beside_of<NONE>(t, how);
    return how.kind == PLAIN ? beside_of<PLAIN>(t, how) : beside_of<SUB>(t, how);
}
#else
bool beside(const Tile& t, Beside& how) { return cut_beside(t, how); }
#endif

}  // namespace gemmsim::NS
#endif
