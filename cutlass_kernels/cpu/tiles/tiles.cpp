// The table of tile kernels (Isa::tile) of one carrier (CARRIER: C32 or C64) for one instruction set, by kernel, step and kind of rounding.
// Which of them computes a tile is decided in product/kernel_table.cpp.
#include "vec.h"
// ISA_BLOCK(kind): the rows whose sums gemm_kernel.h computes together.
#if ISA_AVX512
#define ISA_BLOCK(kind) ((kind) <= Rounding::FLUSH ? 8 : 4)
#elif ISA_AVX2
#define ISA_BLOCK(kind) ((kind) > Rounding::FLUSH ? 2 : (kind) == Rounding::NATIVE || (kind) > Rounding::SATURATE ? 4 : 8)
#elif ISA_NEON
#define ISA_BLOCK(kind) ((kind) <= Rounding::OVERFLOWS ? 8 : 4)
#else
#define ISA_BLOCK(kind) 2
#endif
#include "tiles/gemm_kernel.h"
#include "tiles/stochastic/stochastic.h"
#define SPECULATIVE_GROUP 2
#include "tiles/nearest/truncated.h"

namespace gemmsim::NS {

constexpr bool FLOATS = sizeof(CARRIER::T) == 4;

// Each function returns the kernel of that name for a step and a kind of rounding; null where this instruction set has none.

template <int STEP, Rounding KIND> constexpr TileFn truncated_kernel() {
#if ISA_DIRECTED || (ISA_MODES && !ISA_NEON)
    if constexpr (FLOATS && (STEP == FMA_ODD || (STEP == FMA_NEAR && ISA_DIRECTED && KIND == Rounding::SUBNORMALS)) &&
                  (KIND == Rounding::NORMAL || KIND == Rounding::SUBNORMALS))
        return tile_truncated<STEP, KIND>;
#endif
    return nullptr;
}

// Under modes no other kernel computes exact steps of any operands.
constexpr bool speculates(int step, Rounding kind) {
    if (kind == Rounding::SUBNORMALS) return true;
    return to_odd(step) && (kind == Rounding::NORMAL || kind == Rounding::OVERFLOWS ||
                            (ISA_MODES && (kind == Rounding::SATURATE || kind == Rounding::FLUSH)));
}
template <int STEP, Rounding KIND> constexpr TileFn speculative_kernel() {
#if ISA_DIRECTED || ISA_MODES
    if constexpr (speculates(STEP, KIND)) return tile_speculative<CARRIER, STEP, KIND>;
#endif
    return nullptr;
}

template <int STEP, Rounding KIND> constexpr TileFn rescaled_directed_kernel() {
#if ISA_AVX2 || ISA_AVX512
    if constexpr (FLOATS && STEP < MA_NEAR && KIND == Rounding::DIRECTED) return tile_mode_rescaled<STEP>;
#endif
    return nullptr;
}

template <int STEP, Rounding KIND> constexpr TileFn nearest_then_directed_kernel() {
#if ISA_MODES
    if constexpr (FLOATS && STEP == FMA_NEAR && KIND >= Rounding::DIRECTED)
        return tile_near_in_mode<CARRIER, KIND == Rounding::DIRECTED_CLAMP>;
#endif
    return nullptr;
}

#if ISA_DIRECTED || ISA_MODES
template <int STEP, bool CLAMP> static void tile_stochastic_of(const Tile& t) {
    if (has_wide_random_bits(*t.add)) return tile_stochastic<FMA_ODD, true, CLAMP>(t);
    tile_stochastic<STEP, false, CLAMP>(t);
}

template <int STEP, bool CLAMP> static void tile_directed(const Tile& t) {
    typedef CARRIER C;
    const Const<C> mul = Const<C>::make(*t.mul), add = Const<C>::make(*t.add);
    switch (add.mode) {
        case RNA: return tile_mode<C, STEP, RNA, CLAMP>(t, mul, add);
        case RTZ: return tile_mode<C, STEP, RTZ, CLAMP>(t, mul, add);
        case RU: return tile_mode<C, STEP, RU, CLAMP>(t, mul, add);
        case RD: return tile_mode<C, STEP, RD, CLAMP>(t, mul, add);
        case RO: return tile_mode<C, STEP, RO, CLAMP>(t, mul, add);
        default:
            // Float lanes have kernels of their own for fused stochastic steps.
            if constexpr (!FLOATS || STEP >= MA_NEAR) tile_mode<C, STEP, SR, CLAMP>(t, mul, add);
    }
}
#endif

template <int STEP, Rounding KIND> constexpr TileFn stochastic_kernel() {
#if ISA_DIRECTED || ISA_MODES
    if constexpr (FLOATS && STEP < MA_NEAR && KIND >= Rounding::DIRECTED) return tile_stochastic_of<STEP, KIND == Rounding::DIRECTED_CLAMP>;
#endif
    return nullptr;
}

template <int STEP, Rounding KIND> constexpr TileFn directed_kernel() {
#if ISA_DIRECTED || ISA_MODES
    if constexpr (KIND >= Rounding::DIRECTED) return tile_directed<STEP, KIND == Rounding::DIRECTED_CLAMP>;
#endif
    return nullptr;
}

template <int STEP, Rounding KIND> constexpr TileFn float64_halves_kernel() {
#if ISA_DIRECTED || ISA_MODES
    if constexpr (FLOATS && STEP == FMA_ODD && KIND == Rounding::STOCHASTIC) return tile_in_two_halves;
#endif
    return nullptr;
}

template <int STEP, Rounding KIND> constexpr TileFn round_to_odd_kernel() {
#if ISA_MODES
    if constexpr (to_odd(STEP) && (KIND == Rounding::ANY_MODE || KIND == Rounding::STOCHASTIC))
        return tile_to_odd<CARRIER, STEP, KIND == Rounding::STOCHASTIC>;
#endif
    return nullptr;
}

// Kernels above replace this one where they always pay.
template <int STEP, Rounding KIND> constexpr TileFn plain_kernel() {
    constexpr bool by_modes = ISA_MODES && to_odd(STEP) && (KIND == Rounding::ANY_MODE || KIND == Rounding::STOCHASTIC);
    constexpr bool speculative = (ISA_DIRECTED || ISA_MODES) && speculates(STEP, KIND) && !(ISA_DIRECTED && to_odd(STEP));
    if constexpr (KIND < Rounding::DIRECTED && !by_modes && !speculative) return tile<CARRIER, STEP, KIND>;
    return nullptr;
}

#define EACH_ROUNDING(K, S)                                                                                                    \
    {K<S, Rounding::NATIVE>(),    K<S, Rounding::NORMAL>(),        K<S, Rounding::SUBNORMALS>(), K<S, Rounding::SATURATE>(),   \
     K<S, Rounding::OVERFLOWS>(), K<S, Rounding::FLUSH>(),         K<S, Rounding::ANY_MODE>(),   K<S, Rounding::STOCHASTIC>(), \
     K<S, Rounding::DIRECTED>(),  K<S, Rounding::DIRECTED_CLAMP>()}
#define STEPS_OF(K) {EACH_ROUNDING(K, FMA_NEAR), EACH_ROUNDING(K, FMA_ODD), EACH_ROUNDING(K, MA_NEAR), EACH_ROUNDING(K, MA_ODD)}
extern const TileFn TABLE[TILE_KERNELS][STEPS][ROUNDINGS];
const TileFn TABLE[TILE_KERNELS][STEPS][ROUNDINGS] = {
    // in the order of Kernel
    STEPS_OF(truncated_kernel),  STEPS_OF(speculative_kernel), STEPS_OF(rescaled_directed_kernel), STEPS_OF(nearest_then_directed_kernel),
    STEPS_OF(stochastic_kernel), STEPS_OF(directed_kernel),    STEPS_OF(float64_halves_kernel),    STEPS_OF(round_to_odd_kernel),
    STEPS_OF(plain_kernel)};

}  // namespace gemmsim::NS
