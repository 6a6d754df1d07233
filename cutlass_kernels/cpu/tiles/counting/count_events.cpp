// Counts events at the additions of a product (product/event_args.h). Each sum is rounded to odd in double lanes and then by the
// cast, and the result is compared with the addends. in_few_instructions() chooses the faster kernels of this folder where
// EventTile::by says so. Compiled once per instruction set. The driver (product/event_counter.h) makes sure that
// products are exact.
#include "tiles/counting/count_compensated.h"
#include "tiles/counting/count_multiples.h"
#include "tiles/counting/count_exact_products.h"
#include "tiles/counting/count_native.h"
#include "tiles/counting/count_pairs.h"

namespace gemmsim {
namespace NS {

// Returns columns [at, at + NV vectors) of a tile, as a tile whose draws start there.
static Tile strip(const Tile& t, int at) {
    Tile s = t;
    s.col0 = t.col0 + (uint32_t)at;
    return s;
}

template <class T, bool FUSED, bool RANDOM> static void count_row(const Tile& whole, int nr, int row, int at, const CountedLanes& mul,
                                                                  const CountedLanes& add, const EventTile& into) {
    typedef C64::V V;
    typedef C64::VU VU;
    const Tile t = strip(whole, at);
    const T *a = (const T*)t.a + row, *b = (const T*)t.b + at;
    T* const c = (T*)t.c + row * nr + at;
    const int rm = RANDOM && !FUSED && mul.k.random ? mul.k.rbits : 0, ra = RANDOM && add.k.random ? add.k.rbits : 0;
    const int nm = rm > 16 ? 4 : 8, na = ra > 16 ? 4 : 8;
    Draws<C64, 1> dm, da;
    V s[NV];
    Seen seen[NV] = {};
    for (int j = 0; j < NV; ++j) s[j] = read(c + j * C64::L);
    for (int64_t k = 0; k < t.k; ++k) {
        const int64_t place = t.index(k);
        const bool fresh = k == 0 || t.kmap;
        if (RANDOM && rm && (fresh || place % nm == 0)) dm.make(t, row, (uint32_t)(place / nm), SITE_PRODUCT);
        if (RANDOM && ra && (fresh || place % na == 0)) da.make(t, row, (uint32_t)(place / na), SITE_ADD);
        const V av = splat<C64>((double)a[k * MR]);
        for (int j = 0; j < NV; ++j) {
            const VU xm = RANDOM && rm ? dm.get(0, j, (int)(place % nm), rm) : (VU){};
            const VU xa = RANDOM && ra ? da.get(0, j, (int)(place % na), ra) : (VU){};
            V q = av * read(b + k * nr + j * C64::L);
            if (!FUSED) q = mul.round<RANDOM>(q, xm);
            s[j] = add.sum<RANDOM>(s[j], q, xa, seen[j]);
        }
    }
    for (int j = 0; j < NV; ++j) {
        write(c + j * C64::L, s[j]);
        seen[j].add_to(into, row * nr + at + j * C64::L);
    }
}

// Kahan's sum and the other compensated sums. Counted are the addition that changes S, and the last one, of S and C.
template <class T, bool FUSED> static void count_compensated(const Tile& t, int nr, int method, int row, int at, const CountedLanes& mul,
                                                             const CountedLanes& add, const EventTile& into) {
    typedef C64::V V;
    const T *a = (const T*)t.a + row, *b = (const T*)t.b + at;
    T* const out = (T*)t.c + row * nr + at;
    const auto plus = [&](V x, V y) { return add.round<false>(add_odd<C64>(x, y), (C64::VU){}); };
    for (int j = 0; j < NV; ++j) {
        T* const rest = (T*)t.rest + row * nr + at + j * C64::L;
        V s = t.begins ? V{} : read(out + j * C64::L), c = t.begins ? V{} : read(rest);
        Seen seen = {};
        for (int64_t k = 0; k < t.k; ++k) {
            V q = splat<C64>((double)a[k * MR]) * read(b + k * nr + j * C64::L);
            if (!FUSED) q = mul.round<false>(q, (C64::VU){});
            const V x = method == KAHAN ? plus(q, -c) : add.round<false>(q, (C64::VU){});
            const V u = add.sum<false>(s, x, (C64::VU){}, seen);
            if (method == KAHAN) c = plus(plus(u, -s), -x);
            else if (method == NEUMAIER) {
                const C64::VI smaller = (C64::VI)(magnitude(s) < magnitude(x));
                const V hi = select<C64>(smaller, x, s), lo = select<C64>(smaller, s, x);
                c = plus(c, plus(plus(hi, -u), lo));
            } else if (method == TWO_SUM) {
                const V z = plus(u, -s), lost = plus(s, -plus(u, -z)), rest = plus(x, -z);
                c = plus(c, plus(lost, rest));
            } else {
                c = plus(c, plus(x, -plus(u, -s)));
            }
            s = u;
        }
        if (!t.ends) write(rest, c);
        else if (method != KAHAN && t.k) s = add.sum<false>(s, c, (C64::VU){}, seen);
        write(out + j * C64::L, s);
        seen.add_to(into, row * nr + at + j * C64::L);
    }
}

#if ISA_MODES || ISA_AVX512
// KNOWN: what the carrier loses shows in its sums, so that float or double lanes suffice (EventTile::known). Ties away have no such form.
template <class C, class T, How HOW> static void count_fast_to(const Tile& t, int nr, const ExactCount& add, const EventTile& into) {
    into.known ? count_fast_tile<C, T, HOW, true>(t, nr, add, into) : count_fast_tile<C, T, HOW, false>(t, nr, add, into);
}

template <class C, class T> static void count_fast_run(const Tile& t, int nr, const ExactCount& add, const EventTile& into) {
    switch (t.add->mode) {
        case SR:
            if constexpr (sizeof(typename C::T) == 8) count_fast_to<C, T, BY_DRAW>(t, nr, add, into);
            return;
        case RNE: return count_fast_to<C, T, TO_NEAREST>(t, nr, add, into);
        case RTZ: return count_fast_to<C, T, TOWARD_ZERO>(t, nr, add, into);
        case RU: return count_fast_to<C, T, UPWARD>(t, nr, add, into);
        case RD: return count_fast_to<C, T, DOWNWARD>(t, nr, add, into);
        default: return count_fast_tile<C, T, HALF_AWAY, false>(t, nr, add, into);
    }
}

template <class T> static void in_few_instructions(const Tile& t, int nr, int method, const EventTile& into) {
    const ExactCount add = {*t.add, into.least};
    if constexpr (sizeof(T) == 4) {
        if (method) return count_fast_compensated_sums(t, nr, method, add, into);
        if (into.by == CountBy::MULTIPLES) return grid_tile(t, nr, into);
        if (into.by == CountBy::EXACT_PRODUCTS) return count_exact_products_tile(t, nr, add, into);
        if (into.by == CountBy::NATIVE) return native_tile(t, nr, into.known, add, into);
        if (into.by == CountBy::FLOATS) return count_fast_run<C32, float>(t, nr, add, into);
    }
    count_fast_run<C64, T>(t, nr, add, into);
}
#endif

template <class T> static void count_tile(const Tile& t, int nr, int method, bool fused, const EventTile& into) {
#if ISA_MODES || ISA_AVX512
    if (into.by != CountBy::STEPS) return in_few_instructions<T>(t, nr, method, into);
#endif
    const CountedLanes add = CountedLanes::make(*t.add, into.least), mul = CountedLanes::make(fused ? *t.add : *t.mul, 0);
    const bool random = add.k.random || (!fused && mul.k.random);
    for (int row = 0; row < t.rows; ++row)
        for (int at = 0; at < t.cols; at += NV * C64::L) {
            if (method) {
                if (fused) count_compensated<T, true>(t, nr, method, row, at, mul, add, into);
                else count_compensated<T, false>(t, nr, method, row, at, mul, add, into);
            } else if (random) {
                if (fused) count_row<T, true, true>(t, nr, row, at, mul, add, into);
                else count_row<T, false, true>(t, nr, row, at, mul, add, into);
            } else if (fused) {
                count_row<T, true, false>(t, nr, row, at, mul, add, into);
            } else {
                count_row<T, false, false>(t, nr, row, at, mul, add, into);
            }
        }
}

template <class T, bool RANDOM> static void count_sums(T* s, const T* x, const Tile& t, int nr, const CountedLanes& add, uint64_t index,
                                                       int site, const EventTile& into) {
    const uint64_t per = add.k.rbits > 16 ? 4 : 8;
    Draws<C64, 1> draws;
    for (int row = 0; row < t.rows; ++row)
        for (int at = 0; at < t.cols; at += NV * C64::L) {
            if (RANDOM) draws.make(strip(t, at), row, (uint32_t)(index / per), site);
            for (int j = 0; j < NV; ++j) {
                const int element = row * nr + at + j * C64::L;
                Seen seen = {};
                const C64::VU R = RANDOM ? draws.get(0, j, (int)(index % per), add.k.rbits) : (C64::VU){};
                write(s + element, add.sum<RANDOM>(read(s + element), read(x + element), R, seen));
                seen.add_to(into, element);
            }
        }
}

template <class T> static void count_sums_of(void* s, const void* x, const Tile& t, int nr, const Cast& c, uint64_t index, int site,
                                             const EventTile& into) {
#if ISA_MODES || ISA_AVX512
    if constexpr (sizeof(T) == 4)
        if (into.by == CountBy::FLOATS) {
            const ExactCount add = {c, into.least};
            const FastCount<C32> k = FastCount<C32>::make(c, into.least, c.hi < -c.lo ? c.hi : -c.lo);
            for (int row = 0; row < t.rows; ++row)
                count_fast_sums((float*)s + row * nr, (const float*)x + row * nr, k, add, into, row * (int64_t)nr);
            return;
        }
#endif
    const CountedLanes add = CountedLanes::make(c, into.least);
    if (add.k.random) count_sums<T, true>((T*)s, (const T*)x, t, nr, add, index, site, into);
    else count_sums<T, false>((T*)s, (const T*)x, t, nr, add, index, site, into);
}

static void count_run(int panel, const Tile& t, int nr, int method, bool fused, const EventTile& into) {
    if (panel == 0) count_tile<float>(t, nr, method, fused, into);
    else count_tile<double>(t, nr, method, fused, into);
}

static void count_sum(int panel, void* s, const void* x, const Tile& t, int nr, const Cast& c, uint64_t index, int site,
                      const EventTile& into) {
    if (panel == 0) count_sums_of<float>(s, x, t, nr, c, index, site, into);
    else count_sums_of<double>(s, x, t, nr, c, index, site, into);
}

}  // namespace NS

const EventKernels& EVENTS_GETTER() {
#if ISA_MODES || ISA_AVX512
    static const EventKernels table = {NS::count_run, NS::count_sum, NS::count_pairs};
#else
    static const EventKernels table = {NS::count_run, NS::count_sum, nullptr};
#endif
    return table;
}

}  // namespace gemmsim
