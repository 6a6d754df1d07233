// The table of tile kernels (Isa::tile) of one carrier (CARRIER: C32 or C64) for one instruction set, by step and kind of rounding.
#include "vec.h"
// ISA_BLOCK(kind): the rows whose sums gemm_kernel.h computes together.
#if ISA_AVX512
#define ISA_BLOCK(kind) ((kind) <= FTZ ? 8 : 4)
#elif ISA_AVX2
#define ISA_BLOCK(kind) ((kind) > FTZ ? 2 : (kind) == NONE || (kind) > SAT ? 4 : 8)
#elif ISA_NEON
#define ISA_BLOCK(kind) ((kind) <= SPECIAL ? 8 : 4)
#else
#define ISA_BLOCK(kind) 2
#endif
#include "tiles/gemm_kernel.h"
#include "tiles/stochastic/stochastic.h"
#define SPECULATIVE_GROUP 2
#include "tiles/nearest/truncated.h"

namespace gemmsim::NS {

#if ISA_DIRECTED || ISA_MODES
template <class C, int STEP, bool CLAMP> static void tile_directed(const Tile& t) {
#if ISA_AVX2 || ISA_AVX512
    if constexpr (sizeof(typename C::T) == 4 && STEP < MA_NEAR && !CLAMP)
        if (t.scaled_by) return tile_mode_rescaled<STEP>(t);
#endif
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
#if ISA_MODES
    if constexpr (sizeof(typename C::T) == 4 && STEP == FMA_NEAR)
        if (t.nearest_sums) return tile_near_in_mode<C, CLAMP>(t, add);
#endif
    switch (add.mode) {
        case RNA: return tile_mode<C, STEP, RNA, CLAMP>(t, mul, add);
        case RTZ: return tile_mode<C, STEP, RTZ, CLAMP>(t, mul, add);
        case RU: return tile_mode<C, STEP, RU, CLAMP>(t, mul, add);
        case RD: return tile_mode<C, STEP, RD, CLAMP>(t, mul, add);
        case RO: return tile_mode<C, STEP, RO, CLAMP>(t, mul, add);
        default:
            if constexpr (sizeof(typename C::T) == 4 && STEP < MA_NEAR) {
                if (has_wide_random_bits(*t.add)) return tile_stochastic<FMA_ODD, true, CLAMP>(t);
                return tile_stochastic<STEP, false, CLAMP>(t);
            } else {
                return tile_mode<C, STEP, SR, CLAMP>(t, mul, add);
            }
    }
}

// Kind RANDOM with exact steps: one or both casts are stochastic, and the data are any.
template <class C, int STEP> static void tile_of_draws(const Tile& t) {
    if constexpr (sizeof(typename C::T) == 4 && STEP == FMA_ODD)
        if (has_wide_random_bits(*t.add)) return tile_in_two_halves(t);
#if ISA_MODES
    tile_to_odd<C, STEP, true>(t);
#else
    tile<C, STEP, RANDOM>(t);
#endif
}

#define FAST_PAIR(S) tile_directed<CARRIER, S, false>, tile_directed<CARRIER, S, true>
#else
#define FAST_PAIR(S) nullptr, nullptr
#endif
#if ISA_DIRECTED || ISA_MODES
#if ISA_NEON
#define SPECULATIVE(S, KIND) tile_speculative<CARRIER, S, KIND>
#else
#define SPECULATIVE(S, KIND) tile_nearest<CARRIER, S, KIND>
#endif
#define DRAWS(S) tile_of_draws<CARRIER, S>
#else
#define SPECULATIVE(S, KIND) tile<CARRIER, S, KIND>
#define DRAWS(S) tile<CARRIER, S, RANDOM>
#endif
#if ISA_MODES  // kind GENERAL with exact steps
#define ANY_MODE(S) tile_to_odd<CARRIER, S, false>
#else
#define ANY_MODE(S) tile<CARRIER, S, GENERAL>
#endif
#if ISA_MODES  // under modes no other kernel computes exact steps of any operands
#define SPECULATIVE_BY_MODES(S, KIND) tile_speculative<CARRIER, S, KIND>
#else
#define SPECULATIVE_BY_MODES(S, KIND) tile<CARRIER, S, KIND>
#endif
#define ROW_NEAR(S)                                                                                                                 \
    {tile<CARRIER, S, NONE>, tile<CARRIER, S, PLAIN>,   SPECULATIVE(S, SUB),          tile<CARRIER, S, SAT>, tile<CARRIER, S, SPECIAL>, \
     tile<CARRIER, S, FTZ>,  tile<CARRIER, S, GENERAL>, tile<CARRIER, S, RANDOM>, FAST_PAIR(S)}
#define ROW_ODD(S)             \
    {tile<CARRIER, S, NONE>,   \
     SPECULATIVE(S, PLAIN),        \
     SPECULATIVE(S, SUB),          \
     SPECULATIVE_BY_MODES(S, SAT), \
     SPECULATIVE(S, SPECIAL),      \
     SPECULATIVE_BY_MODES(S, FTZ), \
     ANY_MODE(S),              \
     DRAWS(S),                 \
     FAST_PAIR(S)}
extern const TileFn TABLE[STEPS][KINDS];
const TileFn TABLE[STEPS][KINDS] = {ROW_NEAR(FMA_NEAR), ROW_ODD(FMA_ODD), ROW_NEAR(MA_NEAR), ROW_ODD(MA_ODD)};

}  // namespace gemmsim::NS
