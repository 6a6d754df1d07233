// Encoding, decoding and fake-quantising of blocks. Compiled once per ISA; the loops are written for the compiler to
// vectorise, on bit patterns, so that every ISA gives the same bits.
#include "block_many.h"
#include "stream_floats.h"

#if ISA_AVX512
#define ISA_STREAMS true
#else
#define ISA_STREAMS false
#endif

namespace gemmsim { namespace NS {

static bool is_flushed(uint32_t amax, const BlockFormat& f) { return (f.flags & FLUSH) && log2_step(amax ? amax : 1u << 23, f.log2_from) <= -127; }

template <int N> static int32_t encode_one(const float* x, int64_t n, const BlockFormat& f, uint8_t* codes) {
    const uint32_t amax = largest<N>(x, n);
    float factor;
    int32_t code;
    if (f.rule == REAL) {
        code = real_scale(amax, f, &factor);
    } else {
        code = power_scale(amax, f);
        factor = f.encode[code];
    }
    if (factor != factor) {
        memset(codes, f.nan_code, (size_t)n);
    } else if (is_flushed(amax, f)) {
        memset(codes, 0, (size_t)n);
    } else {
        encode_elements<N>(x, n, f, factor, amax, codes);
    }
    return code;
}

template <int N> static void decode_one(const uint8_t* codes, int64_t n, const BlockFormat& f, int32_t scale, float* out) {
    float factor = f.decode[scale];
    if (f.flags & TENSOR_SCALE) factor = f.tensor_scale * factor;
    if (factor != factor) {
        for (int64_t i = 0; i < n; ++i) out[i] = float_from(C32::NAN_BITS);
        return;
    }
    decode_elements<N>(codes, n, f, factor, out);
}

// microxcaling's integers have a -0, which their codes have not: what underflowed from below
static void restore_signs(const float* x, int64_t n, const BlockFormat& f, int32_t scale, float* out) {
    const float factor = f.encode[scale];
    if (factor != factor || is_flushed(largest<0>(x, n), f)) return;
    for (int64_t i = 0; i < n; ++i)
        if (out[i] == 0 && x[i] * factor < 0) out[i] = -0.0f;
}

static void load_floats(const char* src, int dtype, int64_t step, int64_t n, float* out) {
    if (dtype != F64) return load_any(src, dtype, step, n, out);
    const double* s = (const double*)src;
    for (int64_t i = 0; i < n; ++i) out[i] = odd_float(s[i * step]);
}

// 32 and 16 are what the named formats have: loops of known length
#define BY_LENGTH(call, n, ...) ((n) == 32 ? call<32>(__VA_ARGS__) : (n) == 16 ? call<16>(__VA_ARGS__) : call<0>(__VA_ARGS__))

template <int N> static void encode_whole(const BlockArgs& a, const BlockTask& t, const float* x, int64_t blocks, uint8_t* codes) {
    int32_t scales[GROUP];
    for (int64_t b = 0; b < blocks; b += GROUP) {
        const int64_t count = blocks - b < GROUP ? blocks - b : GROUP;
        encode_many<N>(x + b * N, count, a.format, codes + b * N, scales);
        for (int64_t i = 0; i < count; ++i) t.scales[(b + i) * a.scale_step] = (uint8_t)scales[i];
    }
}

template <int N> static void decode_whole(const BlockArgs& a, const BlockTask& t, const uint8_t* codes, int64_t blocks, float* out) {
    const BlockFormat& f = a.format;
    float factors[GROUP];
    for (int64_t b = 0; b < blocks; b += GROUP) {
        const int64_t count = blocks - b < GROUP ? blocks - b : GROUP;
        for (int64_t i = 0; i < count; ++i) {
            const float factor = f.decode[t.scales[(b + i) * a.scale_step]];
            factors[i] = f.flags & TENSOR_SCALE ? f.tensor_scale * factor : factor;
            if (factors[i] != factors[i]) factors[i] = float_from(C32::NAN_BITS);
        }
        decode_many<N>(codes + b * N, count, f, factors, out + b * N, t.stream && (const char*)out == t.dst);
    }
}

static bool takes_whole(const BlockArgs& a) {
    const BlockFormat& f = a.format;
    if (f.block_size != 32 && f.block_size != 16) return false;
    // infinite elements under scales of zero, which e8m0 has not, need a look at each product
    return a.op == ENCODE ? has_fast_way(f) : a.op == DECODE && !(f.rule == REAL && (f.flags & SPECIALS));
}

// Elements that whole blocks of a fast way take; the rest goes block by block.
static int64_t whole_blocks(const BlockArgs& a, const BlockTask& t, const float* x, uint8_t* codes, float* out) {
    const BlockFormat& f = a.format;
    const int64_t blocks = t.count / f.block_size;
    if (!takes_whole(a)) return 0;
    if (a.op == ENCODE && f.block_size == 32) encode_whole<32>(a, t, x, blocks, codes);
    else if (a.op == ENCODE) encode_whole<16>(a, t, x, blocks, codes);
    else if (f.block_size == 32) decode_whole<32>(a, t, codes, blocks, out);
    else decode_whole<16>(a, t, codes, blocks, out);
    return blocks * f.block_size;
}

static void block_task(const BlockArgs& a, const BlockTask& t) {
    const BlockFormat& f = a.format;
    const int64_t n = t.count, size = f.block_size;
    float* values = (float*)t.work;                                             // loaded, or to be saved
    uint8_t* bytes = (uint8_t*)t.work + (n * 8 + 63) / 64 * 64;                 // one code a byte
    float* results = values + n;
    const bool in_place = a.src_dtype == F32 && a.src_step == 1;
    const float* x = in_place ? (const float*)t.src : values;
    if (a.op != DECODE && !in_place) load_floats(t.src, a.src_dtype, a.src_step, n, values);
    if (a.op == DECODE && !(a.packing == BYTES && a.code_step == 1)) unpack(a.packing, t.codes, a.code_step, n, bytes);
    const bool bytes_out = a.op == ENCODE && a.packing == BYTES && a.code_step == 1;
    const bool bytes_in = a.op == DECODE && a.packing == BYTES && a.code_step == 1;
    uint8_t* codes = bytes_out || bytes_in ? t.codes : bytes;
    // decoding streams by itself where the vectors are aligned, and all of the task is whole blocks
    const bool by_itself = ISA_STREAMS && a.op == DECODE && takes_whole(a) && n % size == 0 && ((uintptr_t)t.dst & (WIDTH - 1)) == 0;
    const bool direct = a.op != ENCODE && a.dst_dtype == F32 && a.dst_step == 1 && (!t.stream || by_itself);
    float* out = direct ? (float*)t.dst : results;
    const int64_t done = whole_blocks(a, t, x, codes, out);
    for (int64_t i = done, block = done / size; i < n; i += size, ++block) {
        const int64_t m = n - i < size ? n - i : size;
        int32_t scale = a.op == DECODE ? t.scales[block * a.scale_step] : BY_LENGTH(encode_one, m, x + i, m, f, codes + i);
        if (a.op == ENCODE) {
            t.scales[block * a.scale_step] = (uint8_t)scale;
            continue;
        }
        if (a.op == QUANTIZE && (f.flags & MXC) && (f.flags & TWOS_COMPLEMENT)) {
            BY_LENGTH(decode_one, m, codes + i, m, f, scale, results + i);
            restore_signs(x + i, m, f, scale, results + i);  // before `out`, which may be the input itself
            if (out != results) memcpy(out + i, results + i, (size_t)m * 4);
        } else {
            BY_LENGTH(decode_one, m, codes + i, m, f, scale, out + i);
        }
    }
    if (a.op == ENCODE) {
        if (!bytes_out) pack(a.packing, bytes, n, t.codes, a.code_step);
    } else if (t.stream && !direct) {
        stream_floats((float*)t.dst, results, n);
    } else if (!direct) {
        save_any<C32>(results, n, t.dst, a.dst_dtype, a.dst_step);
    }
#if defined(__SSE2__)
    if (t.stream) _mm_sfence();
#endif
}

}  // namespace NS

BlockFn BLOCK_GETTER() { return NS::block_task; }

}  // namespace gemmsim
