// The matrix kernels of one carrier (CARRIER: C32 or C64) for one ISA.
#include "vec.h"
#if ISA_AVX512
#define ISA_BLOCK(kind) ((kind) <= FTZ ? 8 : 4)
#elif ISA_AVX2
#define ISA_BLOCK(kind) ((kind) <= FTZ ? 4 : 2)
#else
#define ISA_BLOCK(kind) 2
#endif
#include "gemm_kernel.h"
#include "directed_kernel.h"

namespace gemmsim::NS {

#if ISA_AVX512
#define FAST_PAIR(S) tile_directed<CARRIER, S, false>, tile_directed<CARRIER, S, true>
#else
#define FAST_PAIR(S) nullptr, nullptr
#endif
#define ROW(S)                                                                                                                      \
    {tile<CARRIER, S, NONE>, tile<CARRIER, S, PLAIN>,   tile<CARRIER, S, SUB>,    tile<CARRIER, S, SAT>, tile<CARRIER, S, SPECIAL>, \
     tile<CARRIER, S, FTZ>,  tile<CARRIER, S, GENERAL>, tile<CARRIER, S, RANDOM>, FAST_PAIR(S)}
extern const TileFn TABLE[STEPS][KINDS];
const TileFn TABLE[STEPS][KINDS] = {ROW(FMA_NEAR), ROW(FMA_ODD), ROW(MA_NEAR), ROW(MA_ODD)};

}  // namespace gemmsim::NS
