// Entry point of the kernels of short_runs.h, for both carriers of one instruction set.
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "tiles/short_runs/short_runs.h"

#if !ISA_FEW
namespace gemmsim::NS {

template <class C, RunsRounding KIND> static bool runs_fused(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    return plan.step == FMA_NEAR ? runs_tile<C, FMA_NEAR, KIND>(t, lengths, plan) : runs_tile<C, FMA_ODD, KIND>(t, lengths, plan);
}
template <class C, RunsRounding KIND> static bool runs_kind(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    if (plan.step < MA_NEAR) return runs_fused<C, KIND>(t, lengths, plan);
    return plan.step == MA_NEAR ? runs_tile<C, MA_NEAR, KIND>(t, lengths, plan) : runs_tile<C, MA_ODD, KIND>(t, lengths, plan);
}

template <class C> static bool runs_of(const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
    if (plan.kind == RunsRounding::NATIVE)
        return plan.step == FMA_NEAR ? runs_tile<C, FMA_NEAR, RunsRounding::NATIVE>(t, lengths, plan)
                                     : runs_tile<C, MA_NEAR, RunsRounding::NATIVE>(t, lengths, plan);
    if (plan.kind == RunsRounding::FLUSH) return runs_fused<C, RunsRounding::FLUSH>(t, lengths, plan);
    if (plan.kind == RunsRounding::CLAMPED) return runs_kind<C, RunsRounding::CLAMPED>(t, lengths, plan);
    return plan.kind == RunsRounding::NORMAL ? runs_kind<C, RunsRounding::NORMAL>(t, lengths, plan)
                                             : runs_kind<C, RunsRounding::SUBNORMALS>(t, lengths, plan);
}

#if ISA_DIRECTED || ISA_MODES
bool runs_in_mode(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan);
#endif

bool runs(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan) {
#if ISA_DIRECTED || ISA_MODES
    if (plan.kind == RunsRounding::DIRECTED) return runs_in_mode(carrier, t, lengths, plan);
#endif
    return carrier == 0 ? runs_of<C32>(t, lengths, plan) : runs_of<C64>(t, lengths, plan);
}

}  // namespace gemmsim::NS
#endif
