// Registers that add terms which are there already, those of a table of products: no product is made.
#pragma once
#include "isa_table.h"

namespace gemmsim {

// c = R(c + term) for all terms of a tile and all its MR rows; b is k x MR x NR, a is not read. `kind`: a vector kernel's;
// `odd`: sums rounded to odd first.
typedef void (*AddTermsFn)(int carrier, const Tile& t, int kind, bool odd);

void add_terms_baseline(int carrier, const Tile& t, int kind, bool odd);
void add_terms_neon(int carrier, const Tile& t, int kind, bool odd);
void add_terms_avx2(int carrier, const Tile& t, int kind, bool odd);
void add_terms_avx512(int carrier, const Tile& t, int kind, bool odd);

}  // namespace gemmsim
