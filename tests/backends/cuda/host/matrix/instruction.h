// A matrix instruction without scales on the host: each thread computes its own outputs of a tile of 128 x 128 from the operands'
// bytes in shared memory, by the model of the chip (HOST_MODEL, which the test writes before a kernel's text).
#pragma once
#pragma GCC optimize("O2")
#include <math.h>
#include "gemm/tensor_cores/native_mma_config.h"
#include "gemmsim/device/hardware_step.h"

namespace host {

constexpr int TILE = 128, STEP = 32;  // bytes of a line that an instruction takes

// Where byte `at` of a line lies: 128 bytes a line, 16-byte pieces exchanged by the line's number modulo 8.
inline unsigned swizzled(int line, int at) { return line * 128 + (at ^ (line % 8 * 16)); }

inline float number(uint32_t code, int exponent_bits, int fraction_bits, bool ieee) {
    const uint32_t fields = 1u << exponent_bits, e = code >> fraction_bits & (fields - 1), f = code & ((1u << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const bool negative = code >> (exponent_bits + fraction_bits) & 1;
    float y;
    if (ieee && e == fields - 1) y = f ? NAN : INFINITY;
    else if (!ieee && e == fields - 1 && f == (1u << fraction_bits) - 1) y = NAN;
    else y = ldexpf(e ? (float)((1u << fraction_bits) + f) : (float)f, (int)(e ? e : 1) - bias - fraction_bits);
    return negative ? -y : y;
}
template <gemmsim::Element E> inline float element(const uint8_t* line) {
    using gemmsim::Element;
    uint32_t code = 0;
    for (int i = 0; i < gemmsim::element_bytes(E); ++i) code |= (uint32_t)line[i] << 8 * i;
    if (E == Element::F16) return number(code, 5, 10, true);
    if (E == Element::BF16) return number(code, 8, 7, true);
    if (E == Element::TF32) return number(code >> 13, 8, 10, true);
    return E == Element::E4M3 ? number(code, 4, 3, false) : number(code, 5, 2, true);
}

// What an instruction takes of one line.
template <gemmsim::Element E> struct Operand {
    static constexpr int TERMS = STEP / gemmsim::element_bytes(E);
    uint8_t byte[STEP];
    float value[TERMS];
    bool zero, finite;

    void read(const uint8_t* chunk, int line, int k) {
        for (int i = 0; i < STEP; ++i) byte[i] = chunk[swizzled(line, k * STEP + i)];
        zero = finite = true;
        for (int i = 0; i < TERMS; ++i) {
            value[i] = element<E>(byte + i * gemmsim::element_bytes(E));
            zero = zero && value[i] == 0;
            finite = finite && value[i] - value[i] == 0;
        }
    }
    bool is_still(const uint8_t* chunk, int line, int k) const {
        for (int i = 0; i < STEP; ++i)
            if (byte[i] != chunk[swizzled(line, k * STEP + i)]) return false;
        return true;
    }
};

struct Terms {
    const float *a, *b;
    float x(int i) const { return a[i]; }
    float y(int i) const { return b[i]; }
};

template <class A, class B> inline float instruction(const A& a, const B& b, float c) {
    constexpr int TERMS = A::TERMS, PRODUCTS = gemmsim::HOST_MODEL.products;
    static_assert(A::TERMS == B::TERMS && TERMS % PRODUCTS == 0);
    if ((a.zero && b.finite) || (b.zero && a.finite)) return c;  // a register stays as it is
    for (int first = 0; first < TERMS; first += PRODUCTS) {
        const Terms terms = {a.value + first, b.value + first};
        gemmsim::HardwareStep<gemmsim::HOST_MODEL, gemmsim::Cast{}, Terms> one = {terms, PRODUCTS, false, c};
        one.run();
        c = one.c;
    }
    return c;
}

}  // namespace host
