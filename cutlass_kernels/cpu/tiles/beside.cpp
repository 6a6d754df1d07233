// Tiles side by side of one ISA: where there are sixteen registers.
#include "vec.h"
#if ISA_AVX2
#include "tiles/beside.h"

namespace gemmsim::NS {

template <int KIND> static bool beside_of(const Tile& t, int tiles, int panels, const Sink& sink) {
    return panels == 1 ? tiles_beside<1, KIND>(t, tiles, sink) : tiles_beside<2, KIND>(t, tiles, sink);
}

bool beside(const Tile& t, int tiles, int panels, int kind, const Sink& sink) {
    if (kind == NONE) return beside_of<NONE>(t, tiles, panels, sink);
    return kind == PLAIN ? beside_of<PLAIN>(t, tiles, panels, sink) : beside_of<SUB>(t, tiles, panels, sink);
}

}  // namespace gemmsim::NS
#endif
