// Element-wise functions and the function table of one ISA. Compiled once per ISA.
#include "elementwise.h"

namespace gemmsim { namespace NS {

extern const TileFn tiles32[STEPS][KINDS];
extern const TileFn tiles64[STEPS][KINDS];

static void load_(int carrier, const void* src, int dtype, int64_t stride, int64_t n, void* dst) {
    if (carrier == 0) load_any((const char*)src, dtype, stride, n, (float*)dst);
    else load_any((const char*)src, dtype, stride, n, (double*)dst);
}

static void save_(int carrier, const void* src, int64_t n, void* dst, int dtype, int64_t stride) {
    if (carrier == 0) save_any<C32>((const float*)src, n, dst, dtype, stride);
    else save_any<C64>((const double*)src, n, dst, dtype, stride);
}

static void stats_(int carrier, const void* x, int64_t n, Stats* s) {
    if (carrier == 0) stats_of<C32>((const float*)x, n, s);
    else stats_of<C64>((const double*)x, n, s);
}

static void round_(int carrier, void* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site) {
    if (carrier == 0) {
        float* f = (float*)x;
        if (vector_can<C32>(c)) return round_vectors<C32>(f, n, c, seed, index0, site);
        if (!vector_can<C64>(c)) return round_scalars(f, n, c, seed, index0, site);
        double wide[256];
        for (int64_t i = 0; i < n; i += 256) {
            const int64_t m = n - i < 256 ? n - i : 256;
            for (int64_t j = 0; j < m; ++j) wide[j] = f[i + j];
            round_vectors<C64>(wide, m, c, seed, index0 + i, site);
            for (int64_t j = 0; j < m; ++j) f[i + j] = (float)wide[j];
        }
        return;
    }
    if (vector_can<C64>(c)) return round_vectors<C64>((double*)x, n, c, seed, index0, site);
    round_scalars((double*)x, n, c, seed, index0, site);
}

template <class C, int KIND, bool STREAM> static void quantize_loop(const typename C::T* src, typename C::T* dst, int64_t n, const Cast& c) {
    typedef typename C::V V;
    typedef typename C::VU VU;
    typedef typename C::T T;
    const Const<C> k = Const<C>::make(c);
    const V nan = (V)splat_u<C>(C::NAN_BITS);
    int64_t i = 0;
    for (; i + C::L <= n; i += C::L) {
        const V x = load<V>(src + i);
        const V v = round_to<C, KIND>(x, k, (VU){});
        const V r = v == v ? v : nan;
#if ISA_AVX512
        if (STREAM) { _mm512_stream_ps((float*)(dst + i), (__m512)r); continue; }
#elif ISA_AVX2
        if (STREAM) { _mm256_stream_ps((float*)(dst + i), (__m256)r); continue; }
#endif
        store(dst + i, r);
    }
    if (i < n) {
        V x = {};
        memcpy(&x, src + i, (size_t)(n - i) * sizeof(T));
        const V v = round_to<C, KIND>(x, k, (VU){});
        const V r = v == v ? v : nan;
        memcpy(dst + i, &r, (size_t)(n - i) * sizeof(T));
    }
#if defined(__SSE2__)
    if (STREAM) _mm_sfence();
#endif
}

template <class C> static void quantize_kind(const void* src, void* dst, int64_t n, const Cast& c, int kind, int stream) {
    typedef typename C::T T;
    const T* s = (const T*)src;
    T* d = (T*)dst;
    if (stream && (uintptr_t)d % WIDTH == 0) {
        if (kind == SAT) quantize_loop<C, SAT, true>(s, d, n, c);
        else if (kind == SPECIAL) quantize_loop<C, SPECIAL, true>(s, d, n, c);
        else quantize_loop<C, GENERAL, true>(s, d, n, c);
    } else {
        if (kind == SAT) quantize_loop<C, SAT, false>(s, d, n, c);
        else if (kind == SPECIAL) quantize_loop<C, SPECIAL, false>(s, d, n, c);
        else quantize_loop<C, GENERAL, false>(s, d, n, c);
    }
}

// Same-type contiguous deterministic rounding without a copy in between; false if this cast needs another path.
static int quantize_(int carrier, const void* src, void* dst, int64_t n, const Cast& c, int stream) {
    if (c.mode >= SR || !(carrier == 0 ? vector_can<C32>(c) : vector_can<C64>(c))) return 0;
    const int mb = carrier == 0 ? (int)C32::MB : (int)C64::MB, top = carrier == 0 ? 127 : 1023;
    const bool magic = c.mode == RNE && c.p <= mb - 1 && c.emax + 1 + mb + 1 - c.p <= top && !(c.flags & NO_SUBNORMALS);
    int kind = GENERAL;
    if (magic && c.over_pos == c.hi && c.over_neg == c.lo && c.inf_pos == c.hi && c.inf_neg == c.lo) kind = SAT;
    else if (magic && (c.over_pos == c.inf_pos || c.over_pos != c.over_pos) && (c.over_neg == c.inf_neg || c.over_neg != c.over_neg)) kind = SPECIAL;
    if (carrier == 0) quantize_kind<C32>(src, dst, n, c, kind, stream);
    else quantize_kind<C64>(src, dst, n, c, kind, stream);
    return 1;
}

static Isa make() {
    Isa t = {};
    t.name = ISA_NAME;
#if ISA_AVX512
    t.has_directed = 1;
#endif
    t.nr[0] = 2 * C32::L;
    t.nr[1] = 2 * C64::L;
    memcpy(t.tile[0], tiles32, sizeof t.tile[0]);
    memcpy(t.tile[1], tiles64, sizeof t.tile[1]);
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

}  // namespace gemmsim
