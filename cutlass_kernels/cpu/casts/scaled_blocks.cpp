// This file rounds to finite floats, and to blocks of finite floats or integers under one scale. The compiler
// vectorises the loops. Products with scales that are powers of two are exact in float64. Quotients by a block's own
// float scale are rounded to binary32, as the format is defined. The file is compiled once per ISA.
#include <math.h>
#include "casts/block_float.h"
#include "casts/block_steps.h"
#include "casts/stream_floats.h"

namespace gemmsim {
namespace NS {

constexpr int64_t PIECE = 2048;
// Nearest rounding for formats without a significand field: the exponent's low bit decides ties.
constexpr int RNE_EXPONENT = 100;

struct FloatGrid {
    double max, smallest_normal, scale;  // scale: 2^(random bits)
    int64_t least;                       // exponent field of smallest_normal
    int trailing;
    bool flush, absolute;
};

static FloatGrid grid_of(const FiniteFloatArgs& f, int rbits) {
    FloatGrid g;
    g.max = f.max;
    g.smallest_normal = power(f.emin);
    g.scale = power(rbits);
    g.least = (int64_t)bits_of(g.smallest_normal);
    g.trailing = f.trailing;
    g.flush = f.flags & FLUSH;
    g.absolute = f.flags & ABSOLUTE;
    return g;
}

// Rounds v to the value set; |v| < 2^900, or v is infinite or NaN.
template <int MODE> INL double round_float(double v, const FloatGrid& g, double R) {
    const double a = fabs(v);
    const int64_t field = (int64_t)(bits_of(a) & (0x7FFull << 52)), e = field > g.least ? field : g.least;
    const int64_t quantum = e - ((int64_t)g.trailing << 52);
    const double q = double_of((uint64_t)quantum), inverse = double_of((uint64_t)((2046ll << 52) - quantum));
    const double t = v * inverse;
    double r;
    if (MODE == RNE) {
        r = nearest(t);
    } else {
        const double w = trunc(t), f = fabs(t - w);
        const bool odd = (e >> 52) & 1;  // float64's bias is odd, as binary32's is
        const bool up = MODE == RNE_EXPONENT ? f > 0.5 || (f == 0.5 && odd) : goes_up<MODE>(v, w, f, f > 0, g.scale, R);
        r = up ? w + copysign(1.0, v) : w;
    }
    double z = r * q;
    const double most = copysign(g.max, v);
    z = a == (double)INFINITY || fabs(z) > g.max ? most : z;
    z = g.flush && a < g.smallest_normal ? 0.0 : z;
    z = g.absolute ? fabs(z) : z;
    return v == v ? z + 0.0 : canonical_nan();
}

// y = round(x * up) * down
template <int MODE> static void round_floats_as(const float* x, float* y, int64_t n, const FloatGrid& grid, double up, double down,
                                                const C32::U* draws) {
    const FloatGrid g = grid;
    for (int64_t i = 0; i < n; ++i)
        y[i] = (float)(round_float<MODE>((double)x[i] * up, g, MODE >= SR && MODE <= SRC ? (double)draws[i] : 0.0) * down);
}

static void round_floats(const float* x, float* y, int64_t n, const FiniteFloatArgs& f, const FloatGrid& g, double up, double down,
                         const C32::U* draws) {
    switch (f.mode) {
        case RNE:
            return g.trailing ? round_floats_as<RNE>(x, y, n, g, up, down, draws)
                              : round_floats_as<RNE_EXPONENT>(x, y, n, g, up, down, draws);
        case RNA: return round_floats_as<RNA>(x, y, n, g, up, down, draws);
        case RND: return round_floats_as<RND>(x, y, n, g, up, down, draws);
        case RNU: return round_floats_as<RNU>(x, y, n, g, up, down, draws);
        case RTZ: return round_floats_as<RTZ>(x, y, n, g, up, down, draws);
        case RU: return round_floats_as<RU>(x, y, n, g, up, down, draws);
        case RD: return round_floats_as<RD>(x, y, n, g, up, down, draws);
        case RO: return round_floats_as<RO>(x, y, n, g, up, down, draws);
        case SR: return round_floats_as<SR>(x, y, n, g, up, down, draws);
        case SRB: return round_floats_as<SRB>(x, y, n, g, up, down, draws);
        default: return round_floats_as<SRC>(x, y, n, g, up, down, draws);
    }
}

// Rounds to nearest even in float lanes. Instead of scaling elements it uses the value set times 2^e. Adding and
// subtracting 1.5 * 2^23 quanta rounds to a multiple of the quantum. This is exact where that number is finite and the
// smallest normal number is a normal float.
template <int N> static void round_near_as(const float* x, float* y, int64_t n, int trailing, float limit, float least, bool flush,
                                           bool absolute) {
    const uint32_t more = ((uint32_t)(23 - trailing) << 23) | 0x400000;
    uint32_t lowest;
    memcpy(&lowest, &least, sizeof lowest);
    const int32_t sign = absolute ? 0x7FFFFFFF : -1;
    for (int64_t i = 0; i < (N ? N : n); ++i) {
        float v = x[i];
        v = v > limit ? limit : v;
        v = v < -limit ? -limit : v;
        uint32_t field;  // for a NaN the sum wraps
        memcpy(&field, &v, sizeof field);
        field &= 0x7F800000;
        field = (field > lowest ? field : lowest) + more;
        float magic;
        memcpy(&magic, &field, sizeof magic);
        float r = (v + magic) - magic;
        r = flush && fabsf(v) < least ? 0.0f : r;
        int32_t u;
        memcpy(&u, &r, sizeof u);
        u &= sign;
        memcpy(&r, &u, sizeof r);
        y[i] = v == v ? r : float_from(C32::NAN_BITS);
    }
}

static bool round_near(const float* x, float* y, int64_t n, const FiniteFloatArgs& f, int e) {
    const double limit = f.max * power(e);
    if (f.mode != RNE || f.trailing < 1 || f.trailing > 21 || f.emin + e < -126 || limit >= power(104 + f.trailing)) return false;
    const bool flush = f.flags & FLUSH, absolute = f.flags & ABSOLUTE;
    const float most = (float)limit, least = (float)power(f.emin + e);
    switch (n) {
        case 16: round_near_as<16>(x, y, n, f.trailing, most, least, flush, absolute); break;
        case 32: round_near_as<32>(x, y, n, f.trailing, most, least, flush, absolute); break;
        case 64: round_near_as<64>(x, y, n, f.trailing, most, least, flush, absolute); break;
        case 128: round_near_as<128>(x, y, n, f.trailing, most, least, flush, absolute); break;
        default: round_near_as<0>(x, y, n, f.trailing, most, least, flush, absolute);
    }
    return true;
}

// Expresses the value set times 2^e as a cast for float lanes (tiles/rounders.h). Returns false if there is none.
static bool cast_of(const FiniteFloatArgs& f, int rbits, int e, Cast* c) {
    const bool own_range = isinf(f.max);  // what leaves the carrier is infinite
    const double most = own_range ? power(127) * (2.0 - power(-f.trailing)) : f.max * power(e);
    if ((f.mode == RNE && f.trailing == 0) || f.mode < RNE || f.mode == SRC || most > 0x1.fffffep127) return false;
    const double end = own_range ? (double)INFINITY : most;
    const bool halfway = f.mode == SRB;  // R and a half: one more bit, which is set
    *c = Cast{f.trailing + 1, f.emin + e, halfway ? (int32_t)SR : f.mode, rbits + halfway, 0, ilogb(most), -most, most, -end, end,
              -end,           end};
    return vector_can<C32>(*c);
}

template <bool STOCHASTIC> static void round_lanes_as(const float* x, float* y, int64_t n, const FiniteFloatArgs& f, const Cast& c,
                                                      const C32::U* draws) {
    typedef C32::V V;
    typedef C32::VU VU;
    const Const<C32> k = Const<C32>::make(c);
    const Draw<C32> simple(k, c);
    const V least = splat<C32>(f.flags & FLUSH ? (float)power(c.emin) : 0.0f), nan = (V)splat_u<C32>(C32::NAN_BITS);
    const VU kept = splat_u<C32>(f.flags & ABSOLUTE ? ~C32::SIGN : ~0u), half = splat_u<C32>(f.mode == SRB);
    each_vector<C32>(x, y, n, STOCHASTIC ? draws : nullptr, [&](V v, VU R) __attribute__((always_inline)) {
        V r = STOCHASTIC ? round_drawn<C32>(v, k, simple, (R << half) | half) : round_general<C32, false>(v, k, R);
        r = select<C32>((C32::VI)((V)((VU)v & ~C32::SIGN) < least), V{}, (V)((VU)r & kept));
        return select<C32>((C32::VI)(v == v), r, nan);
    });
}

static bool round_lanes(const float* x, float* y, int64_t n, const FiniteFloatArgs& f, int rbits, int e, const C32::U* draws) {
    Cast c;
    if (!cast_of(f, rbits, e, &c)) return false;
    if (c.mode == SR) round_lanes_as<true>(x, y, n, f, c, draws);
    else round_lanes_as<false>(x, y, n, f, c, draws);
    return true;
}

// y = integer(x / c) * scale, each step in binary32. Adding and subtracting 1.5 * 2^23 makes the nearest integer of
// quotients below 2^22.
template <int N> static void near_integers(const float* x, float* y, int64_t n, float c, float scale, float hi) {
    const float magic = 0x1.8p23f;
    for (int64_t i = 0; i < (N ? N : n); ++i) {
        const float t = x[i] / c;
        float r = (t + magic) - magic;
        r = r > hi ? hi : r;
        r = r < -hi ? -hi : r;
        y[i] = t == t ? r * scale + 0.0f : float_from(C32::NAN_BITS);
    }
}

template <int MODE> static void round_integers_as(const float* x, float* y, int64_t n, float c, float scale, const BlockFloatArgs& a,
                                                  const C32::U* draws) {
    const double limit = a.clamp ? (double)((1ll << (a.bits - 1)) - 1) : (double)INFINITY, random = MODE >= SR ? power(a.rbits) : 0;
    if (MODE == RNE && a.bits <= 22) {
        const float hi = a.clamp ? (float)limit : 0x1p22f;
        switch (n) {
            case 16: return near_integers<16>(x, y, n, c, scale, hi);
            case 32: return near_integers<32>(x, y, n, c, scale, hi);
            case 64: return near_integers<64>(x, y, n, c, scale, hi);
            default: return near_integers<0>(x, y, n, c, scale, hi);
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        const double t = (double)(x[i] / c);
        double r;
        if (MODE == RNE) {
            r = nearest(t);
        } else {
            const double w = trunc(t), f = fabs(t - w);
            r = goes_up<MODE>(t, w, f, f > 0, random, MODE >= SR ? (double)draws[i] : 0.0) ? w + copysign(1.0, t) : w;
        }
        r = r > limit ? limit : r;
        r = r < -limit ? -limit : r;
        y[i] = t == t ? (float)r * scale + 0.0f : float_from(C32::NAN_BITS);
    }
}

static void round_integers(const float* x, float* y, int64_t n, float c, float scale, const BlockFloatArgs& a, const C32::U* draws) {
    switch (a.mode) {
        case RNE: return round_integers_as<RNE>(x, y, n, c, scale, a, draws);
        case RNA: return round_integers_as<RNA>(x, y, n, c, scale, a, draws);
        case RND: return round_integers_as<RND>(x, y, n, c, scale, a, draws);
        case RNU: return round_integers_as<RNU>(x, y, n, c, scale, a, draws);
        case RTZ: return round_integers_as<RTZ>(x, y, n, c, scale, a, draws);
        case RU: return round_integers_as<RU>(x, y, n, c, scale, a, draws);
        case RD: return round_integers_as<RD>(x, y, n, c, scale, a, draws);
        case RO: return round_integers_as<RO>(x, y, n, c, scale, a, draws);
        case SR: return round_integers_as<SR>(x, y, n, c, scale, a, draws);
        case SRB: return round_integers_as<SRB>(x, y, n, c, scale, a, draws);
        default: return round_integers_as<SRC>(x, y, n, c, scale, a, draws);
    }
}

// Bits of the largest magnitude, where infinity and NaN are the largest. N is the length if the compiler knows it, else
// 0.
template <int N> static uint32_t largest_pattern(const float* x, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < (N ? N : n); ++i) {
        int32_t u;
        memcpy(&u, x + i, sizeof u);
        u &= 0x7FFFFFFF;
        most = u > most ? u : most;
    }
    return (uint32_t)most;
}

struct BlockRounder {
    const BlockFloatArgs& a;
    const FloatGrid element, scaler;
    double up = 1, down = 1;
    float c = 0, scale = 0;
    int e = 0;

    explicit BlockRounder(const BlockFloatArgs& args)
        : a(args), element(grid_of(args.element, args.rbits)), scaler(grid_of(args.scaler, 0)) {}

    // The largest magnitude of a block: for integers the bits of a float, for floats those of the largest finite one as
    // a double.
    uint64_t largest(const float* x, int64_t n) const {
        if (a.kind == SCALED_INTEGERS)
            return n == 16 ? largest_pattern<16>(x, n) : n == 32 ? largest_pattern<32>(x, n) : largest_pattern<0>(x, n);
        if (a.kind != SCALED_FLOATS) return 0;
        return n == 16 ? largest_of<C32, 16>(x, n) : n == 32 ? largest_of<C32, 32>(x, n) : largest_of<C32>(x, n);
    }
    void scale_by(uint64_t largest) {
        if (a.kind == SCALED_FLOATS) {
            e = exponent_of(largest) - a.shift;
            up = power(-e);
            down = power(e);
        } else if (a.kind == SCALED_INTEGERS) {
            c = float_from((uint32_t)largest) / (float)((1ll << (a.bits - 1)) - 1);
            if (!round_near(&c, &scale, 1, a.scaler, 0)) round_floats(&c, &scale, 1, a.scaler, scaler, 1, 1, nullptr);
        }
    }
    void round(const float* x, float* y, int64_t n, const C32::U* draws) const {
        if (a.kind != SCALED_INTEGERS && round_near(x, y, n, a.element, e)) return;
        if (a.kind != SCALED_INTEGERS && round_lanes(x, y, n, a.element, a.rbits, e, draws)) return;
        if (a.kind != SCALED_INTEGERS) round_floats(x, y, n, a.element, element, up, down, draws);
        else if (c > 0) round_integers(x, y, n, c, scale, a, draws);
        else
            for (int64_t i = 0; i < n; ++i) y[i] = x[i] == x[i] ? x[i] : float_from(C32::NAN_BITS);  // only zeros, or a NaN
    }
};

// One piece of a run: it is loaded, rounded and stored.
struct ScaledPiece {
    const BlockFloatArgs& a;
    const BlockFloatRun& run;
    int64_t first, n;
    const float* x;
    alignas(64) float values[PIECE];
    alignas(64) float results[PIECE];
    alignas(64) C32::U draws[PIECE];

    ScaledPiece(const BlockFloatArgs& args, const BlockFloatRun& r) : a(args), run(r) {}

    void load(int64_t at, int64_t count) {
        first = at;
        n = count;
        const char* s = run.src + at * run.src_step * bytes_of(a.src_dtype);
        const bool direct = run.src_step == 1 && a.src_dtype == F32;
        x = direct ? (const float*)s : values;
        if (!direct) load_any(s, a.src_dtype, run.src_step, n, values);
    }
    void draw() {
        if (a.mode < SR) return;
        const uint64_t index = run.index + (uint64_t)(first * run.index_step);
        if (run.index_step == 1) return draws_for<C32>(a.seed, index, n, a.site, a.rbits, draws);
        for (int64_t i = 0; i < n; ++i) draws[i] = draw_element(a.seed, index + (uint64_t)(i * run.index_step), a.site, a.rbits);
    }
    void save() {
        char* d = run.dst + first * run.dst_step * bytes_of(a.dst_dtype);
        if (run.stream && a.dst_dtype == F32 && run.dst_step == 1) stream_floats((float*)d, results, n);
        else save_any<C32>(results, n, d, a.dst_dtype, run.dst_step);
    }
};

// A block longer than a piece takes two passes: one for its scale, one that rounds.
static void long_block(ScaledPiece& piece, BlockRounder& rounder, int64_t first, int64_t count) {
    uint64_t most = 0;
    for (int64_t i = 0; rounder.a.kind != FINITE_FLOATS && i < count; i += PIECE) {
        piece.load(first + i, count - i < PIECE ? count - i : PIECE);
        const uint64_t found = rounder.largest(piece.x, piece.n);
        most = found > most ? found : most;
    }
    rounder.scale_by(most);
    for (int64_t i = 0; i < count; i += PIECE) {
        piece.load(first + i, count - i < PIECE ? count - i : PIECE);
        piece.draw();
        rounder.round(piece.x, piece.results, piece.n, piece.draws);
        piece.save();
    }
}

static void scaled_blocks(const BlockFloatArgs& a, const BlockFloatRun& run) {
    ScaledPiece piece(a, run);
    BlockRounder rounder(a);
    if (a.block > PIECE) {
        for (int64_t i = 0; i < run.count; i += a.block) long_block(piece, rounder, i, run.count - i < a.block ? run.count - i : a.block);
        return;
    }
    const int64_t whole = PIECE / a.block * a.block;
    for (int64_t i = 0; i < run.count; i += whole) {
        piece.load(i, run.count - i < whole ? run.count - i : whole);
        piece.draw();
        for (int64_t b = 0; b < piece.n; b += a.block) {
            const int64_t n = piece.n - b < a.block ? piece.n - b : a.block;
            rounder.scale_by(rounder.largest(piece.x + b, n));
            rounder.round(piece.x + b, piece.results + b, n, piece.draws + b);
        }
        piece.save();
    }
#if defined(__SSE2__)
    if (run.stream) _mm_sfence();
#endif
}

}  // namespace NS

ScaledBlocks SCALED_BLOCKS_GETTER() { return NS::scaled_blocks; }

}  // namespace gemmsim
