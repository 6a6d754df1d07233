// Runs of a plain register: s = R(s + a b), or s = R(s + R(a b)). This is the run of most products.
#pragma once
#include "gemm/simt/async_terms.h"
#include "gemm/simt/chunk_ranges.h"
#include "gemm/simt/k_loop.h"
#include "gemmsim/device/draws.h"

namespace gemmsim {

// The random bits of one rounding for all outputs of a thread. A block of Philox has the bits of eight successive terms, or of four if
// a draw has more than 16 bits. Without USED there are none.
template <GemmConfig K, Cast C, int SITE, bool USED> struct Draws {
    GEMMSIM_HD void start() {}
    GEMMSIM_HD void seek(const Place<K>&, int64_t) {}
    GEMMSIM_HD uint32_t get(int, int) const { return 0; }
};
template <GemmConfig K, Cast C, int SITE> struct Draws<K, C, SITE, true> {
    static constexpr int N = C.rbits <= 16 ? 8 : 4;
    Words4 words[K.rows][K.cols];
    uint32_t held, at;

    GEMMSIM_HD void start() { held = 0xFFFFFFFFu; }
    GEMMSIM_HD void seek(const Place<K>& place, int64_t k) {
        at = (uint32_t)k % N;
        if ((uint32_t)k / N == held) return;
        held = (uint32_t)k / N;
        GEMMSIM_UNROLL for (int i = 0; i < K.rows; ++i) GEMMSIM_UNROLL for (int j = 0; j < K.cols; ++j) {
            const uint64_t row = place.row(i);
            words[i][j] = philox((uint32_t)place.seed, (uint32_t)(place.seed >> 32), place.col(j), (uint32_t)row, held,
                                 (uint32_t)SITE | (uint32_t)(row >> 32) << 8);
        }
    }
    GEMMSIM_HD uint32_t get(int i, int j) const { return pick_held<C.rbits>(words[i][j], at); }
};

template <GemmConfig K> struct RegisterRun {
    typedef Steps<K> S;
    typedef typename S::T T;
    typedef Planned<K, false> Plan;
    typedef Planned<K, true> DataPlan;
    static constexpr int MEASURES = K.table.columns ? NOTHING : DataPlan::POSSIBLE ? EXTENTS : Plan::POSSIBLE ? MAGNITUDES : NOTHING;
    // Computing blocks of random bits is long code, so that such loops are not unrolled.
    static constexpr bool DRAWS = K.add.mode >= SR || (!K.fused && K.mul.mode >= SR);
    static constexpr int UNROLLED = DRAWS ? 1 : 4;
    // If there is a loop ON_GRID, few chunks take the loop IN_RANGE. IN_RANGE then adds one term in a pass. It adds more where a thread
    // has so few outputs that it would wait for each term's factors.
    static constexpr bool RARE = DataPlan::POSSIBLE && gemm_ahead(K) == 1;
    // The loops over the terms of a chunk. ANY_NUMBERS is the slow one, for any data. IN_RANGE needs sums that cannot overflow. ON_GRID
    // needs products that are multiples of the register's quantum, too.
    enum Loop : int { ANY_NUMBERS = 0, IN_RANGE = 1, ON_GRID = 2 };
    static constexpr int R = K.rows, C = K.cols;

    T s[R][C];
    float bound;  // upper bound of the magnitudes in s
    Draws<K, K.mul, SITE_PRODUCT, (!K.fused && K.mul.mode >= SR)> product_draws;
    Draws<K, K.add, SITE_ADD, (K.add.mode >= SR)> sum_draws;

    GEMMSIM_HD void start() {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) s[i][j] = 0;
        bound = 0;
        product_draws.start();
        sum_draws.start();
    }
    // Sets the registers to `x`. Callers call it after start().
    GEMMSIM_HD void start_from(const Totals<K>& x) {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) s[i][j] = x.v[i][j];
        bound = from_bits<float>(0x7F800000u);
    }

    // Returns an upper bound of the registers' magnitudes. It is infinity or NaN if a register is.
    GEMMSIM_HD float largest_sum() const {
        uint32_t most = 0;
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            const uint32_t u = magnitude_up(s[i][j]);
            most = u > most ? u : most;
        }
        return from_bits<float>(most);
    }

    // Chooses the loop for the chunk in use. If the bound has grown too large, it is computed anew from the registers.
    GEMMSIM_HD Loop plan(const Stream<K>& stream) {
        const Extent a = Stream<K>::template extent<MEASURES>(stream.buffer()->measured_a),
                     b = Stream<K>::template extent<MEASURES>(stream.buffer()->measured_b);
        const float product = Stream<K>::largest_product(a, b);
        float after = Plan::bound_after(bound, product);
        if (!(after < DataPlan::LIMIT)) after = Plan::bound_after(largest_sum(), product);
        Loop loop = Plan::POSSIBLE && Plan::inside(after, product) ? IN_RANGE : ANY_NUMBERS;
        if constexpr (DataPlan::POSSIBLE)
            if (DataPlan::inside(after, product) && a.width() + b.width() <= DataPlan::WIDTH &&
                a.quantum() + b.quantum() >= DataPlan::QUANTUM)
                loop = ON_GRID;
        bound = loop != ANY_NUMBERS ? after : from_bits<float>(0x7F800000u);
        return loop;
    }

    // The factors of AHEAD terms.
    static constexpr int AHEAD = gemm_ahead(K);
    struct Factors {
        typename Stream<K>::Number a[AHEAD][R], b[AHEAD][C];
    };
    static GEMMSIM_HD void load(const Cursor<K>& from, int ahead, Factors& x) {
        GEMMSIM_UNROLL for (int t = 0; t < AHEAD; ++t) from.load(ahead + t, x.a[t], x.b[t]);
    }

    template <int LOOP> GEMMSIM_HD void add(const Stream<K>& stream, const Place<K>& place, int at, const Factors& f, int t) {
        const int64_t k = place.k_of(stream.base + at);
        product_draws.seek(place, k);
        sum_draws.seek(place, k);
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) {
            step<LOOP>(i, j, stream.left(f.a[t][i]), stream.right(f.a[t][i], f.b[t][j]));
        }
    }
    template <int LOOP> GEMMSIM_HD void step(int i, int j, T x, T y) {
        const uint32_t rm = product_draws.get(i, j), ra = sum_draws.get(i, j);
        if constexpr (LOOP == ON_GRID) s[i][j] = DataPlan::step(s[i][j], x, y, rm, ra);
        else if constexpr (LOOP == IN_RANGE) s[i][j] = Plan::step(s[i][j], x, y, rm, ra);
        else s[i][j] = S::step(s[i][j], x, y, rm, ra);
    }

    // Adds the terms [first, end) of the chunk. A pass has at least BY terms if BY > 1. It reads the factors of the next terms while
    // those of the previous terms are added. Addresses count the passes, as int, because the start of the last whole pass may lie before
    // `first`. Only random bits need `at`; the compiler removes it elsewhere.
    template <int LOOP, int BY> GEMMSIM_HD void loop(const Stream<K>& stream, const Place<K>& place, int first, int end) {
        if constexpr (K.copied)
            return add_copied<K, (BY > 1)>(stream, place.ty, place.tx, first, end, [&](int i, int j, T x, T y) { step<LOOP>(i, j, x, y); });
        else loop_turned<LOOP, BY>(stream, place, first, end);
    }
    template <int LOOP, int BY> GEMMSIM_HD void loop_turned(const Stream<K>& stream, const Place<K>& place, int first, int end) {
        Cursor<K> from(stream, place.ty, place.tx, first);
        const uint32_t stop = from.a + (end - first) * Cursor<K>::STEP_A;
        Factors even, odd;
        int at = first;
        if constexpr (BY > 1) {
            constexpr int PASS = BY > 2 * AHEAD ? BY : 2 * AHEAD;
            const int last = (int)stop - PASS * (int)Cursor<K>::STEP_A;
            load(from, 0, even);
            GEMMSIM_NO_UNROLL for (; (int)from.a <= last; at += PASS) {
                GEMMSIM_UNROLL for (int i = 0; i < PASS; i += 2 * AHEAD) {
                    load(from, i + AHEAD, odd);
                    GEMMSIM_UNROLL for (int t = 0; t < AHEAD; ++t) add<LOOP>(stream, place, at + i + t, even, t);
                    load(from, i + 2 * AHEAD, even);
                    GEMMSIM_UNROLL for (int t = 0; t < AHEAD; ++t) add<LOOP>(stream, place, at + i + AHEAD + t, odd, t);
                }
                from.pass(PASS);
            }
        }
        GEMMSIM_NO_UNROLL for (; from.a != stop; ++at) {
            from.load(0, even.a[0], even.b[0]);
            from.pass(1);
            add<LOOP>(stream, place, at, even, 0);
        }
    }

    // Adds the terms [first, first + count) of the chunk in use.
    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first, int count) {
        const int end = first + count;
        if constexpr (MEASURES != NOTHING) {
            const Loop chosen = plan(stream);
            if constexpr (DataPlan::POSSIBLE)
                if (chosen == ON_GRID) return loop<ON_GRID, UNROLLED>(stream, place, first, end);
            if constexpr (Plan::POSSIBLE)
                if (chosen == IN_RANGE) return loop<IN_RANGE, RARE ? 1 : UNROLLED>(stream, place, first, end);
        }
        loop<ANY_NUMBERS, S::Add::NATIVE ? 4 : 1>(stream, place, first, end);
    }

    GEMMSIM_HD void finish(const Place<K>&, Totals<K>& out, int64_t, int64_t) const {
        GEMMSIM_UNROLL for (int i = 0; i < R; ++i) GEMMSIM_UNROLL for (int j = 0; j < C; ++j) out.v[i][j] = s[i][j];
    }
};

}  // namespace gemmsim
