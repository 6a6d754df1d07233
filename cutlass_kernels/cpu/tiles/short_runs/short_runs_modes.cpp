// The kernels of short_runs.h that round toward zero, up or down, for both carriers of one instruction set.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/short_runs/short_runs.h"

#if ISA_DIRECTED || ISA_MODES
namespace gemmsim::NS {

template <class C, int MODE> static bool runs_to(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
#if ISA_MODES
    const RoundingState state(mode_of(MODE));
#endif
    return runs_tile<C, FMA_ODD, RunsRounding::DIRECTED, MODE>(t, lengths, plan);
}

template <class C> static bool runs_by(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    switch (t.add->mode) {
        case RTZ: return runs_to<C, RTZ>(t, lengths, plan);
        case RU: return runs_to<C, RU>(t, lengths, plan);
        default: return runs_to<C, RD>(t, lengths, plan);
    }
}

// Kind DIRECTED: fused steps of any operands. The mode of t.add is RTZ, RU or RD.
bool runs_in_mode(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    return carrier == 0 ? runs_by<C32>(t, lengths, plan) : runs_by<C64>(t, lengths, plan);
}

}  // namespace gemmsim::NS
#endif
