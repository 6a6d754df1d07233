// This file encodes, decodes and fake-quantises blocks. It is compiled once per ISA. The compiler vectorises the loops,
// which work on bit patterns, so that every ISA gives the same bits.
#include "casts/block_fake.h"
#include "casts/stream_floats.h"

#if ISA_AVX512
#define ISA_STREAMS true
#else
#define ISA_STREAMS false
#endif

namespace gemmsim {
namespace NS {

static bool is_flushed(uint32_t amax, const BlockFormat& f) {
    return (f.flags & FLUSH) && log2_step(amax ? amax : 1u << 23, f.log2_from) <= -127;
}

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

// Restores signs of zeros. microxcaling's integers have a -0 for negative values that underflow; their codes have none.
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

// The named formats have blocks of 32 and 16: their loops have a length known at compile time.
#define BY_LENGTH(call, n, ...) ((n) == 32 ? call<32>(__VA_ARGS__) : (n) == 16 ? call<16>(__VA_ARGS__) : call<0>(__VA_ARGS__))

template <int N, Store STORE> static void encode_whole(const BlockArgs& a, const BlockTask& t, const float* x, int64_t blocks,
                                                       uint8_t* codes) {
    constexpr int PER_BYTE = STORE == STORE_BYTES ? 1 : 2;
    int32_t scales[GROUP];
    for (int64_t b = 0; b < blocks; b += GROUP) {
        const int64_t count = blocks - b < GROUP ? blocks - b : GROUP;
        encode_many<N, STORE>(x + b * N, count, a.format, codes + b * N / PER_BYTE, scales);
        for (int64_t i = 0; i < count; ++i) t.scales[(b + i) * a.scale_step] = (uint8_t)scales[i];
    }
}

template <int N, Store STORE> static void decode_whole(const BlockArgs& a, const BlockTask& t, const uint8_t* codes, int64_t blocks,
                                                       float* out) {
    constexpr int PER_BYTE = STORE == STORE_BYTES ? 1 : 2;
    float factors[GROUP];
    for (int64_t b = 0; b < blocks; b += GROUP) {
        const int64_t count = blocks - b < GROUP ? blocks - b : GROUP;
        for (int64_t i = 0; i < count; ++i) factors[i] = decode_factor(a.format, t.scales[(b + i) * a.scale_step]);
        decode_many<N, STORE>(codes + b * N / PER_BYTE, count, a.format, factors, out + b * N, t.stream && (const char*)out == t.dst);
    }
}

static bool takes_whole(const BlockArgs& a) {
    const BlockFormat& f = a.format;
    if (f.block_size != 32 && f.block_size != 16) return false;
    // Infinite elements under a scale of zero, which e8m0 does not have, need a check of each product.
    return a.op == DECODE ? !(f.rule == REAL && (f.flags & SPECIALS)) : has_fast_way(f);
}

template <int N, Store STORE> static int64_t whole_blocks(const BlockArgs& a, const BlockTask& t, const float* x, uint8_t* codes,
                                                          float* out) {
    const int64_t blocks = t.count / N;
    if (a.op == ENCODE) encode_whole<N, STORE>(a, t, x, blocks, codes);
    else if (a.op == DECODE) decode_whole<N, STORE>(a, t, codes, blocks, out);
    else return fake_many<N>(x, blocks, a.format, out, t.stream && (const char*)out == t.dst) * N;
    return blocks * N;
}

// Runs the fast way on whole blocks and returns how many elements it processed. The caller processes the rest block by
// block.
static int64_t whole_blocks(const BlockArgs& a, const BlockTask& t, const float* x, Store store, uint8_t* codes, float* out) {
    if (!takes_whole(a)) return 0;
    const bool wide = a.format.block_size == 32;
#if ISA_AVX512
    if (store == STORE_LOW_FIRST)
        return wide ? whole_blocks<32, STORE_LOW_FIRST>(a, t, x, codes, out) : whole_blocks<16, STORE_LOW_FIRST>(a, t, x, codes, out);
    if (store == STORE_HIGH_FIRST)
        return wide ? whole_blocks<32, STORE_HIGH_FIRST>(a, t, x, codes, out) : whole_blocks<16, STORE_HIGH_FIRST>(a, t, x, codes, out);
#endif
    (void)store;
    return wide ? whole_blocks<32, STORE_BYTES>(a, t, x, codes, out) : whole_blocks<16, STORE_BYTES>(a, t, x, codes, out);
}

// How whole blocks store or load their codes: packed in the tensor itself, or one byte each in a separate buffer.
static Store direct_pairs(const BlockArgs& a) {
    const bool pairs =
        PACKS && a.op != QUANTIZE && a.code_step == 1 && a.format.bits <= 4 && !(a.format.flags & SPECIALS) && takes_whole(a);
    if (pairs && a.packing == LOW_FIRST) return STORE_LOW_FIRST;
    return pairs && a.packing == HIGH_FIRST ? STORE_HIGH_FIRST : STORE_BYTES;
}

static void block_task(const BlockArgs& a, const BlockTask& t) {
    const BlockFormat& f = a.format;
    const int64_t n = t.count, size = f.block_size;
    float* values = (float*)t.work;                                             // loaded, or to be saved
    uint8_t* bytes = (uint8_t*)t.work + (n * 8 + 63) / 64 * 64;                 // one code per byte
    float* results = values + n;
    const bool in_place = a.src_dtype == F32 && a.src_step == 1;
    const float* x = in_place ? (const float*)t.src : values;
    if (a.op != DECODE && !in_place) load_floats(t.src, a.src_dtype, a.src_step, n, values);
    const Store store = direct_pairs(a);
    const int64_t paired = store == STORE_BYTES ? 0 : n / size * size;  // elements whose codes are not in `bytes`
    const bool in_bytes = a.op == QUANTIZE || a.packing != BYTES || a.code_step != 1;
    uint8_t* codes = in_bytes ? bytes : t.codes;
    if (a.op == DECODE && in_bytes) unpack(a.packing, t.codes + paired / 2, a.code_step, n - paired, bytes + paired);
    // Kernels can stream results themselves if vectors are aligned and all blocks are whole.
    const bool by_itself = ISA_STREAMS && takes_whole(a) && n % size == 0 && ((uintptr_t)t.dst & (WIDTH - 1)) == 0;
    const bool direct = a.op != ENCODE && a.dst_dtype == F32 && a.dst_step == 1 && (!t.stream || by_itself);
    float* out = direct ? (float*)t.dst : results;
    const int64_t done = whole_blocks(a, t, x, store, paired ? t.codes : codes, out);
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
        if (in_bytes) pack(a.packing, bytes + paired, n - paired, t.codes + paired / 2, a.code_step);
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
