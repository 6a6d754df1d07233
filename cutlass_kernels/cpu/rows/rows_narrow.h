// Rows on vectors of floats (rows_narrow_lanes.h), where their steps and data allow it.
#pragma once
#include "rows/rows.h"
#include "rows/rows_lanes.h"

namespace gemmsim::NS {

// The steps on floats: prepared once for a call of the row kernel.
struct NarrowSteps {
    rows::Step steps[ROW_STEPS];
    Const<C32> consts[ROW_STEPS];
    bool can = false;   // whether all steps are known here
    bool same = false;  // whether they are one format of up to 11 bits, the last aside
    int p = 0, emin = 0;
};

void narrow_steps(const RowArgs& a, NarrowSteps* n);
// Rows `first` to `first + live` (up to C32::L of them); false, and nothing written, if their data is not ordinary.
bool narrow_group(const RowArgs& a, const NarrowSteps& n, const VectorLanes& wide, int64_t first, int live, char* work);

}  // namespace gemmsim::NS
