// A warp's instructions on the host, in place of CuTe's: done when they are issued.
#pragma once
#include "../../instruction.h"
#include "gemmsim/device/async.h"

namespace gemmsim {

template <InstructionConfig K> struct InstructionMma {
    static constexpr int TERMS = instruction_terms(K.a), COUNT = INSTRUCTION_LINE / 32, SIZE = 64;
    struct Sums {
        float v[SIZE];
        float operator()(int i) const { return v[i]; }
    };
    static void clear(Sums& sums) { for (float& x : sums.v) x = 0; }
    // Any way to share out a tile will do: half a row a thread.
    template <int MODE> static int at(int tid, int i) { return MODE ? tid % 2 * SIZE + i : tid / 2; }

    template <bool WHOLE> static void multiply(const uint8_t* a, const uint8_t* b, int tid, int count, Sums& sums) {
        host::Operand<K.a> left;
        host::Operand<K.b> right;
        for (int k = 0; k < (WHOLE ? COUNT : count); ++k) {
            left.read(a, at<0>(tid, 0), k);
            for (int i = 0; i < SIZE; ++i) {
                right.read(b, at<1>(tid, i), k);
                sums.v[i] = host::instruction(left, right, sums.v[i]);
            }
        }
    }

    static int place(int tid, int i) { return host::swizzled(tid / 2, tid % 2 * 64 + 16 * i); }
    static void copy_bytes(uint8_t* to, const uint8_t* from, bool there) { copy_async<16>(to, from, there); }
    static void commit() { commit_async(); }
    template <int KEPT> static void wait() { wait_async<KEPT>(); }
};

}  // namespace gemmsim
