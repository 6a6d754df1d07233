// Isa::multi_tile of one instruction set: several tiles in one call. AVX2 has both ways, SUMS (multi_tile.h) and TRUNCATE (rescaled.h);
// AVX-512 has TRUNCATE.
#include "vec.h"
#if ISA_AVX2
#include "tiles/nearest/multi_tile.h"
#endif
#if ISA_AVX2 || ISA_AVX512
#define ISA_BLOCK(kind) 4
#include "tiles/nearest/rescaled.h"

namespace gemmsim::NS {

#if ISA_AVX2
template <Rounding KIND> static bool multi_tile_of(const Tile& t, const MultiTile& how) {
    return how.panels == 1 ? tiles_at_once<1, KIND>(t, how.tiles, how.rescaling) : tiles_at_once<2, KIND>(t, how.tiles, how.rescaling);
}

bool multi_tile(const Tile& t, MultiTile& how) {
    if (how.way == MultiTile::TRUNCATE) return truncated_multi_tile(t, how);
    if (how.kind == Rounding::NATIVE) return multi_tile_of<Rounding::NATIVE>(t, how);
    return how.kind == Rounding::NORMAL ? multi_tile_of<Rounding::NORMAL>(t, how) : multi_tile_of<Rounding::SUBNORMALS>(t, how);
}
#else
bool multi_tile(const Tile& t, MultiTile& how) { return truncated_multi_tile(t, how); }
#endif

}  // namespace gemmsim::NS
#endif
