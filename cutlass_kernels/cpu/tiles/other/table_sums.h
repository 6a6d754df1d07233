// Registers that add terms which exist already, those of a table of products. No product is computed.
#pragma once
#include "isa_table.h"

namespace gemmsim {

// c = R(c + term) for all terms of a tile and all its MR rows. b is k x MR x NR, and a is not read. `kind` is that of a vector kernel.
// `odd`: sums are rounded to odd first.
typedef void (*AddTermsFn)(int carrier, const Tile& t, Rounding kind, bool odd);

void add_terms_baseline(int carrier, const Tile& t, Rounding kind, bool odd);
void add_terms_neon(int carrier, const Tile& t, Rounding kind, bool odd);
void add_terms_avx2(int carrier, const Tile& t, Rounding kind, bool odd);
void add_terms_avx512(int carrier, const Tile& t, Rounding kind, bool odd);

}  // namespace gemmsim
