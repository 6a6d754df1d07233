// The registers of table_sums.h for one instruction set.
#include "tiles/other/table_sums.h"
#include "tiles/random_bits.h"
#include "tiles/rounders.h"

namespace gemmsim {
namespace NS {

// The number of rows at a time; the latency of one rounding is hidden behind the others.
#if ISA_AVX512 || ISA_NEON
enum { ROWS_AT_ONCE = 8 };
#else
enum { ROWS_AT_ONCE = 4 };
#endif

template <class C, Rounding KIND, bool ODD, int ROWS> static void add_rows(const Tile& t, int row, const Const<C>& add) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const T* const terms = (const T*)t.b + row * NV * C::L;
    T* const c = (T*)t.c + row * NV * C::L;
    const int bits = KIND == Rounding::STOCHASTIC ? add.rbits : 0, per = bits > 16 ? 4 : 8;
    Draws<C, KIND == Rounding::STOCHASTIC ? ROWS : 1> draws;
    V s[ROWS][NV];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) s[i][j] = load<V>(c + (i * NV + j) * C::L);
    for (int64_t k = 0; k < t.k; ++k) {
        const int64_t at = KIND == Rounding::STOCHASTIC ? t.index(k) : 0;  // draws belong to the absolute index
        if (bits && (k == 0 || t.kmap || at % per == 0)) draws.make(t, row, (uint32_t)(at / per), SITE_ADD);
        const T* const x = terms + k * MR * NV * C::L;
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                const V v = load<V>(x + (i * NV + j) * C::L), sum = ODD ? add_odd<C>(s[i][j], v) : s[i][j] + v;
                s[i][j] = round_to<C, KIND>(sum, add, bits ? draws.get(i, j, (int)(at % per), bits) : (VU){});
            }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) store(c + (i * NV + j) * C::L, s[i][j]);
}

template <class C, Rounding KIND, bool ODD> static void add_all(const Tile& t) {
    constexpr int ROWS = KIND == Rounding::STOCHASTIC || KIND == Rounding::ANY_MODE ? 4 : ROWS_AT_ONCE;
    const Const<C> add = Const<C>::make(*t.add);
    for (int row = 0; row < t.rows; row += ROWS) add_rows<C, KIND, ODD, ROWS>(t, row, add);
}

template <class C, bool ODD> static void add_kind(const Tile& t, Rounding kind) {
    if (kind == Rounding::NATIVE) return add_all<C, Rounding::NATIVE, ODD>(t);
    if (kind == Rounding::NORMAL) return add_all<C, Rounding::NORMAL, ODD>(t);
    if (kind == Rounding::SUBNORMALS) return add_all<C, Rounding::SUBNORMALS, ODD>(t);
    if (kind == Rounding::SATURATE) return add_all<C, Rounding::SATURATE, ODD>(t);
    if (kind == Rounding::OVERFLOWS) return add_all<C, Rounding::OVERFLOWS, ODD>(t);
    if (kind == Rounding::FLUSH) return add_all<C, Rounding::FLUSH, ODD>(t);
    if (t.add->mode == SR) return add_all<C, Rounding::STOCHASTIC, ODD>(t);
    // DIRECTED and DIRECTED_CLAMP are kinds of kernels that compute products. ANY_MODE has their modes, too.
    add_all<C, Rounding::ANY_MODE, ODD>(t);
}

template <class C> static void add_carrier(const Tile& t, Rounding kind, bool odd) {
    odd ? add_kind<C, true>(t, kind) : add_kind<C, false>(t, kind);
}

}  // namespace NS

void ADD_TERMS(int carrier, const Tile& t, Rounding kind, bool odd) {
    if (carrier == 0) NS::add_carrier<NS::C32>(t, kind, odd);
    else NS::add_carrier<NS::C64>(t, kind, odd);
}

}  // namespace gemmsim
