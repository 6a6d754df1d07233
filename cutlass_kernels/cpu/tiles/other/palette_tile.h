// A tile whose elements have roundings of their own, as the driver passes it to a kernel.
#pragma once
#include "isa_table.h"

namespace gemmsim {

enum { MAX_MEMBERS = 8 };

struct PaletteTile {
    Tile t;                // its casts are unused
    const uint8_t* select; // MR x NR: the member of each element
    uint32_t members;      // bit set of members to compute; elements of others get any value
    const Cast *mul[MAX_MEMBERS], *add[MAX_MEMBERS];
    int step;
    Rounding kind;         // NORMAL to ANY_MODE, DIRECTED or DIRECTED_CLAMP, which suffices for all members of the set
    int mode;              // DIRECTED, DIRECTED_CLAMP: the rounding mode of all of them
    // SUBNORMALS is speculative: it assumes that each element stays below its member's `most`, and checks this after every `steps` terms.
    // With steps = 0 nothing is checked.
    double most[MAX_MEMBERS];
    int64_t steps;
};

}  // namespace gemmsim
