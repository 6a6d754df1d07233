// Reads and writes up to 16 bytes of a tensor at a time as binary32, and the packed codes of the same number of elements.
#pragma once
#include "mx/config.h"

namespace gemmsim {

template <class Word, int N> struct alignas(N * sizeof(Word) < 16 ? N * sizeof(Word) : 16) MxPack {
    Word word[N];
};

// Elements of dtype D in memory. Those of 16 bits come in pairs.
template <DType D> struct Lane {
    typedef typename Storage<D>::Word Word;
    static constexpr int ELEMENTS = 1;
};
template <> struct Lane<F16> {
    typedef uint32_t Word;
    static constexpr int ELEMENTS = 2;
};
template <> struct Lane<BF16> {
    typedef uint32_t Word;
    static constexpr int ELEMENTS = 2;
};
template <DType D, int N> using TensorPack = MxPack<typename Lane<D>::Word, N / Lane<D>::ELEMENTS>;

// Element `j` of a pack.
template <DType D, int N> GEMMSIM_HD float unpacked(const TensorPack<D, N>& pack, int j) {
    if constexpr (D == BF16) return from_bits<float>(j % 2 ? pack.word[j / 2] & 0xFFFF0000u : pack.word[j / 2] << 16);
    else if constexpr (D == F16) return half_value((uint16_t)(pack.word[j / 2] >> (16 * (j % 2))));
    else return load_float<D>(pack.word[j]);
}

// Packs numbers, none of which is NaN.
template <DType D, int N> GEMMSIM_HD TensorPack<D, N> packed_numbers(const float (&y)[N]) {
    TensorPack<D, N> out;
    if constexpr (Lane<D>::ELEMENTS == 2) {
        GEMMSIM_UNROLL for (int j = 0; j < N / 2; ++j) out.word[j] = pair_of<D>(y[2 * j], y[2 * j + 1]);
    } else {
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) out.word[j] = (typename Lane<D>::Word)y[j];
    }
    return out;
}

// Packs any values. NaN becomes the canonical one.
template <DType D, int N> GEMMSIM_HD TensorPack<D, N> packed_values(const float (&y)[N]) {
    TensorPack<D, N> out;
    if constexpr (Lane<D>::ELEMENTS == 2) {
        GEMMSIM_UNROLL for (int j = 0; j < N / 2; ++j) out.word[j] = store_value<D>(y[2 * j]) | (uint32_t)store_value<D>(y[2 * j + 1])
                                                                                                    << 16;
    } else {
        GEMMSIM_UNROLL for (int j = 0; j < N; ++j) out.word[j] = store_value<D>(y[j]);
    }
    return out;
}

// The codes of N elements in memory: words of GROUP codes each, with GROUP * WIDTH / 8 bytes of each word in use.
template <Packing P, int N> struct Codes {
    static constexpr int WIDTH = code_width(P), GROUP = WIDTH == 4 || N < 4 ? N : 4, WORDS = N / GROUP, BITS = N * WIDTH;
    static_assert(N % GROUP == 0 && GROUP * WIDTH <= 32);
    uint32_t word[WORDS];

    // The number of bytes before element `first` of a row of packs.
    static GEMMSIM_HD uint64_t offset(uint64_t first) { return first / N * (BITS / 8); }

    // The bit of the word where the code of element `j` starts.
    static GEMMSIM_HD constexpr int shift(int j) { return code_shift(P, j % GROUP); }
    static GEMMSIM_HD constexpr uint32_t mask() { return (1u << WIDTH) - 1; }

    GEMMSIM_HD uint32_t code(int j) const { return word[j / GROUP] >> shift(j) & mask(); }
    // The code of `bits` bits in the highest bits of the word. The bits below are arbitrary.
    GEMMSIM_HD uint32_t top(int j, int bits) const { return word[j / GROUP] << (32 - bits - shift(j)); }

    static GEMMSIM_HD Codes read(const uint8_t* at) {
        Codes c;
        if constexpr (BITS % 32 == 0) {
            const MxPack<uint32_t, BITS / 32> in = *(const MxPack<uint32_t, BITS / 32>*)at;
            for (int i = 0; i < WORDS; ++i) c.word[i] = in.word[i];
        } else if constexpr (BITS == 16) {
            c.word[0] = *(const uint16_t*)at;
        } else if constexpr (BITS == 48) {
            const uint16_t* half = (const uint16_t*)at;
            c.word[0] = half[0] | (half[1] & 0xFFu) << 16;
            c.word[1] = half[1] >> 8 | (uint32_t)half[2] << 8;
        } else {
            c.word[0] = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
        }
        return c;
    }

    GEMMSIM_HD void write(uint8_t* at) const {
        if constexpr (BITS % 32 == 0) {
            MxPack<uint32_t, BITS / 32> out;
            for (int i = 0; i < WORDS; ++i) out.word[i] = word[i];
            *(MxPack<uint32_t, BITS / 32>*)at = out;
        } else if constexpr (BITS == 16) {
            *(uint16_t*)at = (uint16_t)word[0];
        } else if constexpr (BITS == 48) {
            uint16_t* half = (uint16_t*)at;
            half[0] = (uint16_t)word[0];
            half[1] = (uint16_t)(word[0] >> 16 | word[1] << 8);
            half[2] = (uint16_t)(word[1] >> 8);
        } else {
            for (int j = 0; j < 3; ++j) at[j] = (uint8_t)(word[0] >> (8 * j));
        }
    }
};

// `x` shifted up by one bit, with the highest bit of `u` below it.
GEMMSIM_HD uint32_t with_sign(uint32_t x, uint32_t u) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_l(u, x, 1);
#else
    return x << 1 | u >> 31;
#endif
}

// The codes of v in a plain block. They enter a word from the highest down. Each sign and each magnitude takes one instruction.
template <MxFormat F, Packing P, int N> GEMMSIM_HD Codes<P, N> plain_codes(const float (&v)[N]) {
    typedef Codes<P, N> C;
    C codes;
    GEMMSIM_UNROLL for (int i = 0; i < C::WORDS; ++i) {
        uint32_t word = 0;
        GEMMSIM_UNROLL for (int j = C::GROUP - 1; j >= 0; --j) {
            const float x = v[i * C::GROUP + (P == Packing::HIGH_FIRST ? j ^ 1 : j)];
            if constexpr (F.integer) word = (word << C::WIDTH) + plain_code<F>(x);
            else word = (with_sign(word << (C::WIDTH - F.bits), to_bits(x)) << (F.bits - 1)) + plain_magnitude<F>(x);
        }
        codes.word[i] = word;
    }
    return codes;
}

// Whether any of the codes is not a number.
template <MxFormat F, Packing P, int N> GEMMSIM_HD bool any_special(const Codes<P, N>& codes) {
    if constexpr (!has_specials<F>()) return false;
    bool found = false;
    if constexpr (P == Packing::BYTES) {
        constexpr uint32_t ones = 0x01010101u, magnitudes = ((1u << (F.bits - 1)) - 1) * ones;
        uint32_t above = 0;
        for (int i = 0; i < Codes<P, N>::WORDS; ++i) above |= (codes.word[i] & magnitudes) + (uint32_t)(127 - F.top) * ones;
        found = (above & 0x80u * ones) != 0;
    } else {
        for (int j = 0; j < N; ++j) found = found || (int32_t)(codes.code(j) & ((1u << (F.bits - 1)) - 1)) > F.top;
    }
    return found;
}

}  // namespace gemmsim
