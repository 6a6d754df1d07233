// The matrix kernels of one carrier (CARRIER: C32 or C64) for one ISA.
#include "vec.h"
#if ISA_AVX512
#define ISA_BLOCK(kind) ((kind) <= FTZ ? 8 : 4)
#elif ISA_AVX2
#define ISA_BLOCK(kind) ((kind) <= FTZ ? 4 : 2)
#elif ISA_NEON
#define ISA_BLOCK(kind) ((kind) <= SPECIAL ? 8 : 4)
#else
#define ISA_BLOCK(kind) 2
#endif
#include "tiles/gemm_kernel.h"
#include "tiles/directed_kernel.h"
#define WATCHED_ROWS 4
#include "tiles/watched.h"

namespace gemmsim::NS {

#if ISA_DIRECTED || ISA_MODES
#define FAST_PAIR(S) tile_directed<CARRIER, S, false>, tile_directed<CARRIER, S, true>
#else
#define FAST_PAIR(S) nullptr, nullptr
#endif
#define ROW(S)                                                                                                                      \
    {tile<CARRIER, S, NONE>, tile<CARRIER, S, PLAIN>,   tile<CARRIER, S, SUB>,    tile<CARRIER, S, SAT>, tile<CARRIER, S, SPECIAL>, \
     tile<CARRIER, S, FTZ>,  tile<CARRIER, S, GENERAL>, tile<CARRIER, S, RANDOM>, FAST_PAIR(S)}
// Exact steps by modes; SAT, SPECIAL and FTZ have exact products and no mode.
#define ROW_BY_MODES(S)                                                                               \
    {tile<CARRIER, S, NONE>,         tile_watched<CARRIER, S, false>, tile_watched<CARRIER, S, true>, \
     tile<CARRIER, S, SAT>,          tile<CARRIER, S, SPECIAL>,       tile<CARRIER, S, FTZ>,          \
     tile_to_odd<CARRIER, S, false>, tile_to_odd<CARRIER, S, true>,   FAST_PAIR(S)}
#if ISA_MODES
#define ROW_EXACT(S) ROW_BY_MODES(S)
#else
#define ROW_EXACT(S) ROW(S)
#endif
extern const TileFn TABLE[STEPS][KINDS];
const TileFn TABLE[STEPS][KINDS] = {ROW(FMA_NEAR), ROW_EXACT(FMA_ODD), ROW(MA_NEAR), ROW_EXACT(MA_ODD)};

}  // namespace gemmsim::NS
