// This file casts rows under scales. It is compiled once per ISA, and every ISA gives the same bits.
#include "casts/scaled_blocks.h"

namespace gemmsim {
namespace NS {

constexpr int64_t CHUNK = 1024;

static int kind_of(const ScaledGrid& g) { return g.integer ? INTEGER_KIND : g.ties == TIES_EVEN ? EVEN_ELEMENT : ODD_ELEMENT; }

template <bool ARRAYS, bool STREAM> static VI cast_any(const ScaledArgs& a, const float* x, float* y, int64_t n, const float* in,
                                                       const float* out, const LaneGrid& g) {
    const int kind = kind_of(a.grid);
    if (kind == EVEN_ELEMENT) return cast_run<EVEN_ELEMENT, false, MULTIPLY, ARRAYS, STREAM>(x, y, n, in, out, g);
    if (kind == ODD_ELEMENT) return cast_run<ODD_ELEMENT, false, MULTIPLY, ARRAYS, STREAM>(x, y, n, in, out, g);
    if (a.emit_integers) return cast_run<INTEGER_KIND, false, AS_IS, ARRAYS, STREAM>(x, y, n, in, out, g);
    return cast_run<INTEGER_KIND, false, DIVIDE, ARRAYS, STREAM>(x, y, n, in, out, g);
}

// Casts under one scale. Elements before the first aligned address are stored without streaming.
static VI cast_plain(const ScaledArgs& a, const float* x, float* y, int64_t n, const float* in, const float* out, const LaneGrid& g,
                     bool stream) {
    if (!stream || (uintptr_t)y % 4) return cast_any<false, false>(a, x, y, n, in, out, g);
    const int64_t lead = (int64_t)((WIDTH - (uintptr_t)y % WIDTH) % WIDTH / 4), head = lead < n ? lead : n;
    VI negative = {};
    if (head) negative = cast_any<false, false>(a, x, y, head, in, out, g);
    return negative | cast_any<false, true>(a, x + head, y + head, n - head, in, out, g);
}

static void scales_of(const ScaledArgs& a, const float* amax, int64_t n, const LaneGrid& g, float* in, float* out) {
    if (!a.amax) {
        for (int64_t i = 0; i < n; ++i) in[i] = out[i] = 1.0f;
    } else if (a.grid.integer) {
        scale_run<true>(amax, n, g.high, in, out);
    } else {
        scale_run<false>(amax, n, g.high, in, out);
    }
}

static void gather(const float* from, int64_t step, int64_t n, float* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
}

INL float nearest(float v) {
    const float a = __builtin_fabsf(v), r = a < 0x1p23f ? (a + 0x1p23f) - 0x1p23f : a;
    return __builtin_copysignf(r, v);
}

static void affine_run(const ScaledArgs& a, const float* x, float* y, int64_t n, const float* low, const float* high, bool one) {
    const float least = a.grid.low, most = a.grid.high;
    for (int64_t i = 0; i < n; ++i) {
        const float step = (high[one ? 0 : i] - low[one ? 0 : i]) / a.steps, zero = nearest(low[one ? 0 : i] / step) - least;
        float q = nearest(x[i] / step) - zero;
        q = q < least ? least : q > most ? most : q;
        const float r = (q + zero) * step;
        y[i] = r == r ? r : float_from(C32::NAN_BITS);
    }
}

// Casts a row through a small buffer. This handles other dtypes and strides, an amax or bias along the row, and affine
// ranges.
static VI cast_chunks(const ScaledArgs& a, const ScaledTask& t, const char* src, char* dst, const float* amax, const float* second,
                      const LaneGrid& g) {
    alignas(64) float x[CHUNK], in[CHUNK], out[CHUNK], bias[CHUNK], raw[CHUNK];
    const int64_t src_size = a.src_dtype == F64   ? 8
                             : a.src_dtype == F32 ? 4
                                                  : 2,
                  dst_size = a.dst_dtype == F64   ? 8
                             : a.dst_dtype == F32 ? 4
                                                  : 2;
    VI negative = {};
    for (int64_t i = 0; i < t.n; i += CHUNK) {
        const int64_t n = t.n - i < CHUNK ? t.n - i : CHUNK;
        load_any(src + i * t.src_step * src_size, a.src_dtype, t.src_step, n, x);
        if (second) gather(second + i * t.second_step, t.second_step, n, bias);
        if (a.rule == AFFINE_RANGE) {
            gather(amax + i * t.amax_step, t.amax_step, n, raw);
            affine_run(a, x, x, n, raw, bias, t.amax_step == 0 && t.second_step == 0);
        } else {
            if (second)
                for (int64_t j = 0; j < n; ++j) x[j] -= bias[j];
            if (a.amax && t.amax_step) {
                gather(amax + i * t.amax_step, t.amax_step, n, raw);
                scales_of(a, raw, n, g, in, out);
                negative |= cast_any<true, false>(a, x, x, n, in, out, g);
            } else {
                if (i == 0) scales_of(a, amax, 1, g, in, out);
                negative |= cast_any<false, false>(a, x, x, n, in, out, g);
            }
            if (second)
                for (int64_t j = 0; j < n; ++j) x[j] += bias[j];
        }
        save_any<C32>(x, n, dst + i * t.dst_step * dst_size, a.dst_dtype, t.dst_step);
    }
    return negative;
}

static VI cast_row(const ScaledArgs& a, const ScaledTask& t, const char* src, char* dst, const float* amax, const float* second,
                   const LaneGrid& g) {
    const bool direct = a.src_dtype == F32 && a.dst_dtype == F32 && t.src_step == 1 && t.dst_step == 1;
    if (!direct || second || a.rule == AFFINE_RANGE || (a.amax && t.amax_step > 1)) return cast_chunks(a, t, src, dst, amax, second, g);
    const float* x = (const float*)src;
    float* y = (float*)dst;
    alignas(64) float in[CHUNK], out[CHUNK];
    if (!a.amax || t.amax_step == 0) {
        scales_of(a, amax, 1, g, in, out);
        return cast_plain(a, x, y, t.n, in, out, g, t.stream);
    }
    VI negative = {};
    for (int64_t i = 0; i < t.n; i += CHUNK) {
        const int64_t n = t.n - i < CHUNK ? t.n - i : CHUNK;
        scales_of(a, amax + i, n, g, in, out);
        negative |= cast_any<true, false>(a, x + i, y + i, n, in, out, g);
    }
    return negative;
}

static int block_row(const ScaledArgs& a, const ScaledTask& t, const char* src, char* dst) {
    const bool read = a.src_dtype == F32 && t.src_step == 1, written = a.dst_dtype == F32 && t.dst_step == 1;
    float* values = (float*)t.work;
    const float* x = read ? (const float*)src : values;
    float* y = written ? (float*)dst : values;
    if (!read) load_any(src, a.src_dtype, t.src_step, t.n, values);
    const bool stream = t.stream && written && (uintptr_t)y % WIDTH == 0;
    const int kind = kind_of(a.grid);
    const int status = kind == INTEGER_KIND   ? cast_blocks<INTEGER_KIND>(a, x, y, t.n, stream)
                       : kind == EVEN_ELEMENT ? cast_blocks<EVEN_ELEMENT>(a, x, y, t.n, stream)
                                              : cast_blocks<ODD_ELEMENT>(a, x, y, t.n, stream);
    if (!written) save_any<C32>(values, t.n, dst, a.dst_dtype, t.dst_step);
    return status;
}

static int scaled_task(const ScaledArgs& a, const ScaledTask& t) {
    const int64_t src_size = a.src_dtype == F64   ? 8
                             : a.src_dtype == F32 ? 4
                                                  : 2,
                  dst_size = a.dst_dtype == F64   ? 8
                             : a.dst_dtype == F32 ? 4
                                                  : 2;
    const bool blocks = a.rule == BLOCK_AMAX || a.rule == BLOCK_POWER || a.rule == BLOCK_REAL;
    const LaneGrid g(a.grid);
    VI negative = {};
    int status = 0;
    for (int64_t r = 0; r < t.rows; ++r) {
        const char* src = t.src + r * t.src_row * src_size;
        char* dst = t.dst + r * t.dst_row * dst_size;
        if (blocks) status |= block_row(a, t, src, dst);
        else negative |= cast_row(a, t, src, dst, t.amax + r * t.amax_row, t.second ? t.second + r * t.second_row : nullptr, g);
    }
    if (a.grid.low == 0 && any(negative)) status |= NEGATIVE_INPUT;
#if defined(__SSE2__)
    if (t.stream) _mm_sfence();
#endif
    return status;
}

}  // namespace NS

ScaledFn SCALED_CAST_GETTER() { return NS::scaled_task; }

}  // namespace gemmsim
