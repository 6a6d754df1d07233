// Runs and the sums of their totals, for both carriers of one ISA.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/runs.h"

#if !ISA_FEW
namespace gemmsim::NS {

bool runs(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    return carrier == 0 ? runs_of<C32>(t, lengths, plan) : runs_of<C64>(t, lengths, plan);
}

}  // namespace gemmsim::NS
#endif
