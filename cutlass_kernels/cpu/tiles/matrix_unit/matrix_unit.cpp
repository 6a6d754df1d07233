// Chooses the kernel for steps of matrix instructions, for one instruction set.
#include "float_state.h"
#include "vec.h"
#define ISA_BLOCK(kind) 2
#include "product/scales.h"
#include "tiles/matrix_unit/matrix_unit_cdna3.h"
#include "tiles/matrix_unit/matrix_unit_groups.h"
#include "tiles/matrix_unit/matrix_unit_exact.h"
#include "tiles/matrix_unit/matrix_unit_two_blocks.h"

namespace gemmsim::NS {

// Computes the steps with their ends in float lanes. False: they need double lanes at their ends.
static bool in_floats(const Tile& t, const HardwareModel& m) {
    if (m.kind == HW_FLOORED) return floored_in_floats(m) && (floored_steps(t, m), true);
    const FusedOut out = fused_out(m, *t.add);
    const int emin = register_emin(m, *t.add);
    switch (fused_end(m, out)) {
        case TOWARD_ZERO: {
#if ISA_MODES
            const RoundingState mode(RoundingState::TO_ZERO);
#endif
            fused_steps<TOWARD_ZERO>(t, m, out, emin);
            return true;
        }
        case NEAREST: return fused_steps<NEAREST>(t, m, out, emin), true;
        case SHORT: return fused_steps<SHORT>(t, m, out, emin), true;
        case IN_DOUBLE: break;
    }
    return false;
}

// `bits`: the bits that each addend keeps below the largest exponent. Where nothing is truncated, this many bits contain everything.
void hardware(const Tile& t, const HardwareModel& model, int bits, bool wide_lanes) {
    HardwareModel m = model;
    m.kept = bits;
    if (m.kind == HW_TREE) return tree_steps(t, m);
    if (m.kind == HW_GROUPS) return group_steps(t, m, nullptr);
    if (m.kind == HW_TWO_BLOCKS) return two_block_steps(t, m);
    const bool in_integers = !wide_lanes && terms_in_int32(m.kept) > 0;
    if (model.kept < 0 && m.kind == HW_FUSED && !in_integers) return exact_steps(t, model, bits);
    if (m.kind == HW_FUSED && m.kept > KEPT_IN_DOUBLE) return long_steps(t, m);
    if (!wide_lanes && in_floats(t, m)) return;
    if (wide_lanes) block_steps<true>(t, m);
    else block_steps<false>(t, m);
}

}  // namespace gemmsim::NS
