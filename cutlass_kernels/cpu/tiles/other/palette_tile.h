// A tile whose elements have roundings of their own, as the driver hands it to a kernel.
#pragma once
#include "isa_table.h"

namespace gemmsim {

enum { MAX_MEMBERS = 8 };

struct PaletteTile {
    Tile t;                // its casts are unused
    const uint8_t* select; // MR x NR: member of each element
    uint32_t members;      // bit set of those to compute; elements of others get anything
    const Cast *mul[MAX_MEMBERS], *add[MAX_MEMBERS];
    int step, kind;        // Step; PLAIN to GENERAL, FAST or FAST_CLAMP, enough for all members of the set
    int mode;              // FAST, FAST_CLAMP: the rounding mode of all of them
    // SUB: a wager that each element stays below its member's `most`, looked at after every `steps` terms; steps 0: none
    double most[MAX_MEMBERS];
    int64_t steps;
};

}  // namespace gemmsim
