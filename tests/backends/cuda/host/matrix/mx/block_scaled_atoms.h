// Instructions on values in bfloat16 on the host, in place of CuTe's: done when they are issued.
#pragma once
#include "../instruction.h"
#include "mx/block_scaled_config.h"

namespace gemmsim {

template <TensorRoute ROUTE> struct TensorMma {
    static constexpr int SIZE = 64;
    struct Sums {
        float v[SIZE];
        float operator()(int i) const { return v[i]; }
    };
    static void clear(Sums& sums) {
        for (float& x : sums.v) x = 0;
    }
    static int place(int line, int term) { return (int)host::swizzled(line, term * 2); }
    // Any way to share out a tile will do: half a row a thread.
    template <int MODE> static int at(int tid, int i) { return MODE ? tid % 2 * SIZE + i : tid / 2; }

    static void multiply(const uint8_t* a, const uint8_t* b, int tid, Sums& sums) {
        host::Operand<Element::BF16> left, right;
        for (int k = 0; k < TENSOR_K / host::Operand<Element::BF16>::TERMS; ++k) {
            left.read(a, at<0>(tid, 0), k);
            for (int i = 0; i < SIZE; ++i) {
                right.read(b, at<1>(tid, i), k);
                sums.v[i] = host::instruction(left, right, sums.v[i]);
            }
        }
    }
    static void publish() {}
};

}  // namespace gemmsim
