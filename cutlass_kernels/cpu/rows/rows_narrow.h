// This file declares row operations on vectors of floats (rows_narrow_lanes.h). They apply where steps and data allow
// it.
#pragma once
#include "rows/rows.h"
#include "rows/rows_lanes.h"

namespace gemmsim::NS {

// The steps on floats. A call of the row kernel prepares them once.
struct NarrowSteps {
    rows::Step steps[ROW_STEPS];
    Const<C32> consts[ROW_STEPS];
    bool can = false;   // whether all steps are supported
    bool same = false;  // whether all steps but the last have one format of up to 11 bits
    int p = 0, emin = 0;
};

void narrow_steps(const RowArgs& a, NarrowSteps* n);
// Computes rows `first` to `first + live` (at most C32::L rows). Returns false, and writes nothing, if the data are not
// ordinary.
bool narrow_group(const RowArgs& a, const NarrowSteps& n, const VectorLanes& wide, int64_t first, int live, char* work);

}  // namespace gemmsim::NS
