// This file makes the function table of one instruction set and defines its element-wise functions. It is compiled once
// per ISA.
#include "casts/elementwise.h"
#include "tiles/directed/combine_sums.h"
#include "tiles/nearest/binary16.h"
#include "tiles/directed/directed.h"
#include "tiles/matrix_unit/exponents.h"
#include "tiles/nearest/midpoint_filter.h"

namespace gemmsim {
namespace NS {

extern const TileFn tiles32[TILE_KERNELS][STEPS][ROUNDINGS];
extern const TileFn tiles64[TILE_KERNELS][STEPS][ROUNDINGS];
#if ISA_AVX2 || ISA_AVX512
bool multi_tile(const Tile& t, MultiTile& how);
#endif
void hardware(const Tile& t, const HardwareModel& m, int bits, bool wide_lanes);
bool palette(int carrier, const PaletteTile& t);
void grid_tile(const Tile& t, bool fused);
void grid_combine(double* s, const double* t, int64_t n, const Cast& c);
void integers(int panel, int lanes, const Tile& t, int nr, const IntegerLanes& how);
bool runs(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan);
bool round_grids(int carrier, void* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site);
CompensatedFn compensated(int carrier, int method, CompensatedRounding how, bool odd);

static void load_(int carrier, const void* src, int dtype, int64_t stride, int64_t n, void* dst) {
    if (carrier == 0) load_any((const char*)src, dtype, stride, n, (float*)dst);
    else load_any((const char*)src, dtype, stride, n, (double*)dst);
}

static void save_(int carrier, const void* src, int64_t n, void* dst, int dtype, int64_t stride) {
    if (carrier == 0) save_any<C32>((const float*)src, n, dst, dtype, stride);
    else save_any<C64>((const double*)src, n, dst, dtype, stride);
}

template <class C> INL void save_rows_of(const typename C::T* src, int64_t pitch, int rows, int64_t n, typename C::T* dst, int64_t row) {
    for (int i = 0; i < rows; ++i) save_any<C>(src + i * pitch, n, dst + i * row, sizeof(typename C::T) == 4 ? F32 : F64, 1);
}
static void save_rows_(int carrier, const void* src, int64_t pitch, int rows, int64_t n, void* dst, int64_t row) {
    if (carrier == 0) save_rows_of<C32>((const float*)src, pitch, rows, n, (float*)dst, row);
    else save_rows_of<C64>((const double*)src, pitch, rows, n, (double*)dst, row);
}

static void stats_(int carrier, const void* x, int64_t n, Stats* s) {
    if (carrier == 0) stats_of<C32>((const float*)x, n, s);
    else stats_of<C64>((const double*)x, n, s);
}

#if ISA_BASE
template <class VI> INL bool none_set(VI) { return false; }  // never called: has_inside() is false here
#endif

// Ways to round one vector of any values. quantize_same() takes the cheapest that fits the cast.
enum Way { NEAREST, WIDE, DIRECTED, ANY };

template <class C, int WAY, int MODE> INL typename C::V quantize_vector(typename C::V x, const Const<C>& k) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
    if constexpr (WAY == ANY) return round_general<C, false>(x, k, (VU){});
    // The format has the carrier's own exponent range: an overflow is the carry into the top exponent.
    if constexpr (WAY == WIDE) {
        const VU u = (VU)x, d = (VU)k.base, one = splat_u<C>(1);
        return (V)((VU)(u + ((one << d) >> 1) - 1 + ((u >> d) & 1)) & ~((one << d) - 1));
    }
    V r;
    if constexpr (WAY == NEAREST)
        r = round_to<C, MODE == RTZ ? Rounding::FLUSH : Rounding::OVERFLOWS>(x, k, (VU){});  // RTZ: the format has no subnormals
#if ISA_DIRECTED || ISA_MODES
    if constexpr (WAY == DIRECTED) r = round_directed<C, MODE, true>(x, k, (VU){});
#endif
    const VU u = (VU)x;
    const V inf = (VI)(u > splat_u<C>(C::SIGN)) ? k.inf_neg : k.inf_pos;
    return select<C>((VI)((u & ~C::SIGN) == splat_u<C>(C::EXP)), inf, r);
}

// Whether a way has a shorter form for values inside the format's range.
constexpr bool has_inside(int way) { return (ISA_DIRECTED || ISA_MODES) && (way == NEAREST || way == DIRECTED); }

// quantize_vector for values whose rounding stays inside the format's range.
template <class C, int WAY, int MODE> INL typename C::V quantize_inside(typename C::V x, const Const<C>& k) {
    typedef typename C::VU VU;
#if ISA_DIRECTED || ISA_MODES
    if constexpr (WAY == DIRECTED) return round_directed<C, MODE, false>(x, k, (VU){});
#endif
    return MODE == RTZ ? round_flush<C>(x, k) : round_to<C, Rounding::SUBNORMALS>(x, k, (VU){});
}

template <class C, bool STREAM> INL void put(typename C::T* to, typename C::V x) {
#if ISA_AVX512
    if (STREAM) return _mm512_stream_ps((float*)to, (__m512)x);
#elif ISA_AVX2
    if (STREAM) return _mm256_stream_ps((float*)to, (__m256)x);
#endif
    store(to, x);
}

template <class C, int WAY, int MODE, bool STREAM> static void quantize_loop(const typename C::T* src, typename C::T* dst, int64_t n,
                                                                             const Cast& c) {
    typedef typename C::V V;
    typedef typename C::VI VI;
    typedef typename C::VU VU;
#if ISA_MODES
    const RoundingState state(WAY == DIRECTED ? mode_of(MODE) : RoundingState::NEAREST);
#endif
    const Const<C> k = Const<C>::make(c);
    const V nan = (V)splat_u<C>(C::NAN_BITS);
    int64_t i = 0;
    if (has_inside(WAY)) {
        const VI end = (VI)vmin(k.hi, -k.lo);  // bound of magnitudes; infinities and NaN exceed it
        for (; i + 4 * C::L <= n; i += 4 * C::L) {
            V x[4];
            VI beyond = {};
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                x[j] = load<V>(src + i + j * C::L);
                beyond |= (VI)((VU)x[j] & ~C::SIGN) > end;
            }
            if (__builtin_expect(none_set(beyond), 1)) {
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) put<C, STREAM>(dst + i + j * C::L, quantize_inside<C, WAY, MODE>(x[j], k));
                continue;
            }
            for (int j = 0; j < 4; ++j) {
                const V v = quantize_vector<C, WAY, MODE>(x[j], k);
                put<C, STREAM>(dst + i + j * C::L, x[j] == x[j] ? v : nan);
            }
        }
    }
    for (; i + C::L <= n; i += C::L) {
        const V x = load<V>(src + i), v = quantize_vector<C, WAY, MODE>(x, k);
        put<C, STREAM>(dst + i, x == x ? v : nan);
    }
    if (i < n) {
        V x = {};
        memcpy(&x, src + i, (size_t)(n - i) * sizeof(typename C::T));
        const V v = quantize_vector<C, WAY, MODE>(x, k), r = x == x ? v : nan;
        memcpy(dst + i, &r, (size_t)(n - i) * sizeof(typename C::T));
    }
#if defined(__SSE2__)
    if (STREAM) _mm_sfence();
#endif
}

template <class C, bool STREAM> static void quantize_way(const typename C::T* s, typename C::T* d, int64_t n, const Cast& c, Way way) {
    if (way == NEAREST && c.flags & NO_SUBNORMALS) return quantize_loop<C, NEAREST, RTZ, STREAM>(s, d, n, c);
    if (way == NEAREST) return quantize_loop<C, NEAREST, RNE, STREAM>(s, d, n, c);
    if (way == WIDE) return quantize_loop<C, WIDE, RNE, STREAM>(s, d, n, c);
#if ISA_DIRECTED || ISA_MODES
    if (way == DIRECTED) {
        if (c.mode == RNA) return quantize_loop<C, DIRECTED, RNA, STREAM>(s, d, n, c);
        if (c.mode == RTZ) return quantize_loop<C, DIRECTED, RTZ, STREAM>(s, d, n, c);
        if (c.mode == RU) return quantize_loop<C, DIRECTED, RU, STREAM>(s, d, n, c);
        if (c.mode == RO) return quantize_loop<C, DIRECTED, RO, STREAM>(s, d, n, c);
        return quantize_loop<C, DIRECTED, RD, STREAM>(s, d, n, c);
    }
#endif
    quantize_loop<C, ANY, RNE, STREAM>(s, d, n, c);
}

template <class C> static int quantize_same(const void* src, void* dst, int64_t n, const Cast& c, int stream) {
    typedef typename C::T T;
    if (c.mode >= SR || !vector_can<C>(c)) return 0;
    const bool flush = (c.flags & NO_SUBNORMALS) != 0;
    const bool in_reach = c.p <= C::MB - 1 && c.emax + 1 + C::MB + 1 - c.p <= C::EMAX;  // the magic numbers of the rounding are finite
    Way way = ANY;
    if (in_reach && c.mode == RNE) way = NEAREST;
    else if (in_reach && (ISA_DIRECTED || ISA_MODES) && !flush) way = DIRECTED;
    else if (c.mode == RNE && !flush && c.p <= C::MB && c.emin == 1 - C::BIAS && c.emax == C::EMAX && (c.flags & NEG_ZERO) &&
             __builtin_isinf(c.over_pos) && __builtin_isinf(c.over_neg) && __builtin_isinf(c.inf_pos))
        way = WIDE;
    const T* s = (const T*)src;
    T* d = (T*)dst;
    // Streaming stores need alignment, so ordinary stores write the first few elements.
    if (!stream || (uintptr_t)d % WIDTH % sizeof(T) != 0) return quantize_way<C, false>(s, d, n, c, way), 1;
    const int64_t lead = (int64_t)((WIDTH - (uintptr_t)d % WIDTH) % WIDTH / sizeof(T));
    const int64_t head = lead < n ? lead : n;
    if (head) quantize_way<C, false>(s, d, head, c, way);
    if (n > head) quantize_way<C, true>(s + head, d + head, n - head, c, way);
    return 1;
}

// Rounds contiguous values deterministically to the same type, without an intermediate copy. Returns 0 if the cast
// needs another function.
static int quantize_(int carrier, const void* src, void* dst, int64_t n, const Cast& c, int stream) {
    return carrier == 0 ? quantize_same<C32>(src, dst, n, c, stream) : quantize_same<C64>(src, dst, n, c, stream);
}

static void round_(int carrier, void* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site) {
    if (quantize_(carrier, x, x, n, c, 0)) return;
    if (((c.flags & ANY_GRID) || c.mode < RNE) && round_grids(carrier, x, n, c, seed, index0, site)) return;
    const bool floats = vector_can<C32>(c) || vectors_can_draw<C32>(c), doubles = vector_can<C64>(c) || vectors_can_draw<C64>(c);
    if (carrier == 0) {
        float* f = (float*)x;
        if (floats) return round_vectors<C32>(f, n, c, seed, index0, site);
        if (!doubles) return round_scalars(f, n, c, seed, index0, site);
        double wide[256];
        for (int64_t i = 0; i < n; i += 256) {
            const int64_t m = n - i < 256 ? n - i : 256;
            for (int64_t j = 0; j < m; ++j) wide[j] = f[i + j];
            round_vectors<C64>(wide, m, c, seed, index0 + i, site);
            for (int64_t j = 0; j < m; ++j) f[i + j] = (float)wide[j];
        }
        return;
    }
    if (doubles) return round_vectors<C64>((double*)x, n, c, seed, index0, site);
    round_scalars((double*)x, n, c, seed, index0, site);
}

template <class C> static void combine_draws_of(void* s, const void* x, const Tile& t, const Cast& c, uint64_t index, int site, bool odd) {
    typedef typename C::T T;
    return odd ? combine_draws<C, true>((T*)s, (const T*)x, t, c, index, site)
               : combine_draws<C, false>((T*)s, (const T*)x, t, c, index, site);
}

static void combine_draws_(int carrier, void* s, const void* x, const Tile& t, const Cast& c, uint64_t index, int site, bool odd) {
    if (carrier == 0) combine_draws_of<C32>(s, x, t, c, index, site, odd);
    else combine_draws_of<C64>(s, x, t, c, index, site, odd);
}

static void combine_(int carrier, void* s, const void* t, int64_t n, const Cast& c, Combine how, bool odd) {
    if (how == Combine::IRREGULAR) grid_combine((double*)s, (const double*)t, n, c);
    else if (carrier == 0) combine_kind<C32>(s, t, n, c, how, odd);
    else combine_kind<C64>(s, t, n, c, how, odd);
}

static void split_(double* x, double* rest, int64_t n, double magic) {  // n: whole vectors
    typedef C64::V V;
    const V m = splat<C64>(magic);
    for (int64_t i = 0; i < n; i += C64::L) {
        const V s = load<V>(x + i), high = (s + m) - m;
        store(x + i, high);
        store(rest + i, s - high);
    }
}

static void times_(const float* x, float* to, int64_t n, float power) {
    int64_t i = 0;
    for (; i + C32::L <= n; i += C32::L) store(to + i, load<C32::V>(x + i) * splat<C32>(power));
    for (; i < n; ++i) to[i] = x[i] * power;
}

#if ISA_AVX2 || ISA_AVX512
static void lowest_bits_(const float* panel, int64_t k, int term, uint8_t* out) {
    if (term == (int)MR) lowest_bits_of<(int)MR>(panel, k, out);
    else lowest_bits_of<NV * C32::L>(panel, k, out);
}
#endif

static void fields_a_(const float* panel, int64_t k, const HardwareModel& m, int32_t* out) {
    if (m.kind == HW_GROUPS) return nonzero_of_a(panel, k, m.group, out);
    fields_of_a(panel, k, m.a_emin, out);
}
static void fields_b_(const float* panel, int64_t k, const HardwareModel& m, int16_t* out) {
    if (m.kind == HW_GROUPS) return nonzero_of_b(panel, k, m.group, out);
    fields_of_b(panel, k, m.b_emin, out);
}

static Isa make() {
    Isa t = {};
    t.name = t.shown = ISA_NAME;
    t.directed = ISA_DIRECTED ? Isa::DIRECTED : ISA_MODES ? Isa::TILES : Isa::NEAREST;
    t.nr[0] = 2 * C32::L;
    t.nr[1] = 2 * C64::L;
    t.rescales = ISA_DIRECTED || (ISA_MODES && !ISA_NEON);
    for (int kernel = 0; kernel < TILE_KERNELS; ++kernel) {
        memcpy(t.tile[kernel][0], tiles32[kernel], sizeof tiles32[kernel]);
        memcpy(t.tile[kernel][1], tiles64[kernel], sizeof tiles64[kernel]);
    }
#if ISA_AVX2 || ISA_AVX512
    t.multi_tile = multi_tile;
    t.multi_tile_sums = !ISA_DIRECTED;
    t.multi_tile_checks = ISA_DIRECTED;
    t.lowest_bits = lowest_bits_;
#endif
    t.fields_a = fields_a_;
    t.fields_b = fields_b_;
    t.save_rows = save_rows_;
    t.times = times_;
    t.combine = combine_;
    t.combine_draws = combine_draws_;
    t.compensated = compensated;
    t.hardware = hardware;
    t.palette = palette;
    t.grids = grid_tile;
#if !ISA_FEW
    t.runs = runs;
#endif
    t.integers = integers;
    t.split = split_;
    t.load = load_;
    t.save = save_;
    t.round = round_;
    t.stats = stats_;
    t.quantize = quantize_;
    return t;
}

}  // namespace NS

const Isa* ISA_GETTER() {
    static const Isa table = NS::make();
    return &table;
}

#if ISA_AVX512
const Isa* isa_avx512fp16() {
    static const Isa table = [] {
        Isa t = NS::make();
        t.shown = "avx512fp16";
        t.fp16 = binary16_avx512();
        return t;
    }();
    return table.fp16 ? &table : nullptr;
}
#endif

}  // namespace gemmsim
