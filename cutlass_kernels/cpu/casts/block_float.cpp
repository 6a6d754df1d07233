// This file rounds to block floating point. The compiler vectorises the loops, which compute in double, where every
// scaled element is exact. The file is compiled once per ISA.
#include <math.h>
#include "casts/block_float.h"
#include "casts/block_steps.h"
#include "casts/stream_floats.h"

namespace gemmsim {
namespace NS {

constexpr int64_t PIECE = 2048;

// 2^-q and 2^q, where q is the exponent of the block's step. Each is a product of two powers, because neither of them
// need be a normal float64 number.
struct Step {
    double up[2], down[2], lo, hi;
};

static Step step_of(const BlockFloatArgs& a, uint64_t largest) {
    const int e = exponent_of(largest), q = e + 2 - a.bits, half = q / 2;
    Step s;
    s.up[0] = power(-half);
    s.up[1] = power(half - q);
    s.down[0] = power(half);
    s.down[1] = power(q - half);
    s.hi = (double)((1ll << (a.bits - 1)) - 1);
    s.lo = -s.hi - (a.flags & LOWEST_CODE ? 1 : 0);
    return s;
}

template <class C, int MODE> static void round_block(const typename C::T* x, typename C::T* y, int64_t n, const Step& s, int flags,
                                                     int rbits, const typename C::U* draws) {
    const bool wide = sizeof(typename C::T) == 8;
    const double up0 = wide ? s.up[0] : s.up[0] * s.up[1], down0 = wide ? s.down[0] : s.down[0] * s.down[1];
    const double up1 = s.up[1], down1 = s.down[1], lo = s.lo, hi = s.hi, scale = MODE >= SR ? power(rbits) : 0;
    const bool keep = flags & KEEP_INFINITY;
    for (int64_t i = 0; i < n; ++i) {
        const double v = (double)x[i];
        double t = v * up0, r;
        if (wide) t *= up1;
        if (MODE == RNE) {
            r = nearest(t);
        } else {
            const double w = trunc(t), f = fabs(t - w);
            const bool rest = f > 0 || (wide && t == 0 && v != 0);
            r = goes_up<MODE>(v, w, f, rest, scale, MODE >= SR ? (double)draws[i] : 0.0) ? w + copysign(1.0, v) : w;
        }
        r = r > hi ? hi : r;
        r = r < lo ? lo : r;
        double z = r * down0;
        if (wide) z *= down1;
        z = z + 0.0;  // integers have no -0
        if (keep) z = fabs(v) == (double)INFINITY ? v : z;
        y[i] = (typename C::T)(v == v ? z : canonical_nan());
    }
}

template <class C> static void round_any(const BlockFloatArgs& a, const typename C::T* x, typename C::T* y, int64_t n, const Step& s,
                                         const typename C::U* draws) {
    switch (a.mode) {
        case RNE: return round_block<C, RNE>(x, y, n, s, a.flags, 0, nullptr);
        case RNA: return round_block<C, RNA>(x, y, n, s, a.flags, 0, nullptr);
        case RND: return round_block<C, RND>(x, y, n, s, a.flags, 0, nullptr);
        case RNU: return round_block<C, RNU>(x, y, n, s, a.flags, 0, nullptr);
        case RTZ: return round_block<C, RTZ>(x, y, n, s, a.flags, 0, nullptr);
        case RU: return round_block<C, RU>(x, y, n, s, a.flags, 0, nullptr);
        case RD: return round_block<C, RD>(x, y, n, s, a.flags, 0, nullptr);
        case RO: return round_block<C, RO>(x, y, n, s, a.flags, 0, nullptr);
        case SR: return round_block<C, SR>(x, y, n, s, a.flags, a.rbits, draws);
        case SRB: return round_block<C, SRB>(x, y, n, s, a.flags, a.rbits, draws);
        default: return round_block<C, SRC>(x, y, n, s, a.flags, a.rbits, draws);
    }
}

// Rounds to nearest even in float lanes: adding and subtracting 1.5 * 2^23 steps rounds to a multiple of the step. This
// is exact where that number is finite, the step is a float, and |x| is at most 2^22 steps.
template <int N> INL bool round_in_floats(const float* x, float* y, int64_t n, const BlockFloatArgs& a, uint64_t largest) {
    const int q = exponent_of(largest) + 2 - a.bits;
    if (q < -149 || q > 103 || a.bits > 22 || a.mode != RNE) return false;
    const float step = (float)power(q), magic = (float)(power(q) * 0x1.8p23);
    const float hi = (float)((1 << (a.bits - 1)) - 1) * step, lo = (a.flags & LOWEST_CODE ? -step : 0.0f) - hi;
    const float nan = float_from(C32::NAN_BITS), kept = a.flags & KEEP_INFINITY ? (float)INFINITY : nan;
    for (int64_t i = 0; i < (N ? N : n); ++i) {
        const float v = x[i];
        float r = (v + magic) - magic;
        r = r > hi ? hi : r;
        r = r < lo ? lo : r;
        r = fabsf(v) == kept ? v : r;
        y[i] = v == v ? r : nan;
    }
    return true;
}

template <int N> static void round_whole(const float* x, float* y, int64_t blocks, const BlockFloatArgs& a, const C32::U* draws) {
    for (int64_t b = 0; b < blocks; ++b, x += N, y += N, draws += N) {
        const uint64_t largest = largest_of<C32, N>(x, N);
        if (!round_in_floats<N>(x, y, N, a, largest)) round_any<C32>(a, x, y, N, step_of(a, largest), draws);
    }
}

// Rounds whole blocks of the usual lengths and returns how many elements it rounded. The caller rounds the rest block
// by block.
static int64_t round_usual(const float* x, float* y, int64_t n, const BlockFloatArgs& a, const C32::U* draws) {
    const int64_t blocks = n / a.block;
    switch (a.block) {
        case 16: round_whole<16>(x, y, blocks, a, draws); break;
        case 32: round_whole<32>(x, y, blocks, a, draws); break;
        case 64: round_whole<64>(x, y, blocks, a, draws); break;
        case 128: round_whole<128>(x, y, blocks, a, draws); break;
        default: return 0;
    }
    return blocks * a.block;
}
static int64_t round_usual(const double*, double*, int64_t, const BlockFloatArgs&, const C64::U*) { return 0; }
static bool round_floats(const float* x, float* y, int64_t n, const BlockFloatArgs& a, uint64_t largest) {
    return round_in_floats<0>(x, y, n, a, largest);
}
static bool round_floats(const double*, double*, int64_t, const BlockFloatArgs&, uint64_t) { return false; }

// One piece of a run in the carrier C: it is loaded, rounded and stored. `values` holds the elements between these
// passes.
template <class C> struct Piece {
    typedef typename C::T T;
    const BlockFloatArgs& a;
    const BlockFloatRun& run;
    int64_t first, n;
    const T* x;
    alignas(64) T values[PIECE];
    alignas(64) T results[PIECE];
    alignas(64) typename C::U draws[PIECE];

    Piece(const BlockFloatArgs& args, const BlockFloatRun& r) : a(args), run(r) {}

    void load(int64_t at, int64_t count) {
        first = at;
        n = count;
        const char* s = run.src + at * run.src_step * bytes_of(a.src_dtype);
        const bool direct = run.src_step == 1 && a.src_dtype == (sizeof(T) == 8 ? F64 : F32);
        x = direct ? (const T*)s : values;
        if (!direct) load_any(s, a.src_dtype, run.src_step, n, values);
    }
    void draw() {
        if (a.mode < SR) return;
        const uint64_t index = run.index + (uint64_t)(first * run.index_step);
        if (run.index_step == 1) return draws_for<C>(a.seed, index, n, a.site, a.rbits, draws);
        for (int64_t i = 0; i < n; ++i) draws[i] = draw_element(a.seed, index + (uint64_t)(i * run.index_step), a.site, a.rbits);
    }
    void round(int64_t at, int64_t count, uint64_t largest) {
        if (round_floats(x + at, results + at, count, a, largest)) return;
        round_any<C>(a, x + at, results + at, count, step_of(a, largest), draws + at);
    }
    void save() {
        char* d = run.dst + first * run.dst_step * bytes_of(a.dst_dtype);
        if (sizeof(T) == 4 && run.stream && a.dst_dtype == F32 && run.dst_step == 1) stream_floats((float*)d, (const float*)results, n);
        else save_any<C>(results, n, d, a.dst_dtype, run.dst_step);
    }
};

template <class C> static uint64_t largest_in(const BlockFloatArgs& a, const BlockFloatRun& run, int64_t first, int64_t count) {
    Piece<C> piece(a, run);
    uint64_t most = 0;
    for (int64_t i = 0; i < count; i += PIECE) {
        piece.load(first + i, count - i < PIECE ? count - i : PIECE);
        const uint64_t found = largest_of<C>(piece.x, piece.n);
        most = found > most ? found : most;
    }
    return most;
}

template <class C> static void round_run(const BlockFloatArgs& a, const BlockFloatRun& run, int64_t first, int64_t count,
                                         uint64_t largest) {
    Piece<C> piece(a, run);
    for (int64_t i = 0; i < count; i += PIECE) {
        piece.load(first + i, count - i < PIECE ? count - i : PIECE);
        piece.draw();
        piece.round(0, piece.n, largest);
        piece.save();
    }
}

template <class C> static void round_blocks(const BlockFloatArgs& a, const BlockFloatRun& run) {
    if (a.block > PIECE) {
        for (int64_t i = 0; i < run.count; i += a.block) {
            const int64_t n = run.count - i < a.block ? run.count - i : a.block;
            round_run<C>(a, run, i, n, largest_in<C>(a, run, i, n));
        }
        return;
    }
    Piece<C> piece(a, run);
    const int64_t whole = PIECE / a.block * a.block;
    for (int64_t i = 0; i < run.count; i += whole) {
        piece.load(i, run.count - i < whole ? run.count - i : whole);
        piece.draw();
        for (int64_t b = round_usual(piece.x, piece.results, piece.n, a, piece.draws); b < piece.n; b += a.block) {
            const int64_t n = piece.n - b < a.block ? piece.n - b : a.block;
            piece.round(b, n, largest_of<C>(piece.x + b, n));
        }
        piece.save();
    }
}

static uint64_t largest_(const BlockFloatArgs& a, const BlockFloatRun& run) {
    return a.src_dtype == F64 ? largest_in<C64>(a, run, 0, run.count) : largest_in<C32>(a, run, 0, run.count);
}

static void round_(const BlockFloatArgs& a, const BlockFloatRun& run, uint64_t largest) {
    if (a.src_dtype == F64) round_run<C64>(a, run, 0, run.count, largest);
    else round_run<C32>(a, run, 0, run.count, largest);
}

static void blocks_(const BlockFloatArgs& a, const BlockFloatRun& run) {
    if (a.src_dtype == F64) round_blocks<C64>(a, run);
    else round_blocks<C32>(a, run);
#if defined(__SSE2__)
    if (run.stream) _mm_sfence();
#endif
}

}  // namespace NS

const BlockFloatIsa* BLOCK_FLOAT_GETTER() {
    static const BlockFloatIsa table = {NS::largest_, NS::round_, NS::blocks_};
    return &table;
}

}  // namespace gemmsim
