// Tensor memory and the instructions of sm_100a that use it, on the host, as the PTX manual describes them; with the names of CuTe
// that kernels use. Instructions run as late as they may: when somebody waits for them. Sums are exact for small numbers.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define CUTE_UNROLL
#define CUTE_NO_UNROLL

namespace machine {

enum What { COPY, MMA, SCALED, COMMIT };
struct Instruction {
    What what;
    uint64_t a, b;       // shared memory descriptors
    uint32_t id, d;      // instruction descriptor, tensor memory of the sums or of the copy
    uint32_t scale_a, scale_b;
    uint64_t* barrier;
    int kind, block;     // of MMA: bytes an element (0: two elements a byte); of SCALED: terms a scale
};
static uint32_t memory[128][512];
static Instruction queue[1 << 14];
static unsigned first, last;
constexpr uint32_t BASE = 64;  // where allocations begin

inline void put(Instruction one) { queue[last++ % (1 << 14)] = one; }
inline uint8_t* window() { return (uint8_t*)(((uint64_t)host::shared + 1023) / 1024 * 1024); }
inline uint32_t* own(uint32_t at) { return &memory[(at >> 16) + threadIdx.x % 32][at & 0xFFFF]; }

// Byte `at` of row `row` of a matrix with K major: rows of 128 bytes, eight a group, and 16-byte pieces exchanged (2), or rows of 16.
inline uint8_t byte(uint64_t descriptor, int row, int at) {
    const uint32_t start = (descriptor & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4, swizzle = descriptor >> 61;
    uint32_t place = start + row / 8 * stride + row % 8 * (swizzle == 2 ? 128 : 16) + at;
    if (swizzle == 2) place ^= (place >> 7 & 7) << 4;
    return window()[place];
}

inline double number(uint32_t code, int exponent_bits, int fraction_bits) {
    const int bias = exponent_bits == 8 ? 127 : (1 << (exponent_bits - 1)) - 1, e = code >> fraction_bits & ((1 << exponent_bits) - 1);
    const double f = (double)(code & ((1 << fraction_bits) - 1)) / (1 << fraction_bits);
    const double y = e ? ldexp(1 + f, e - bias) : ldexp(f, 1 - bias);
    return code >> (exponent_bits + fraction_bits) & 1 ? -y : y;
}
// Format fields of the instruction descriptor: 8 bits 0 = e4m3, 1 = e5m2; 16 bits 0 = f16, 1 = bf16; 32 bits: tf32.
inline double element(uint64_t descriptor, int row, int i, int bytes, int format) {
    if (bytes == 0) return number(byte(descriptor, row, i / 2) >> i % 2 * 4 & 15, 2, 1);
    uint32_t code = 0;
    for (int j = 0; j < bytes; ++j) code |= (uint32_t)byte(descriptor, row, i * bytes + j) << 8 * j;
    if (bytes == 1) return number(code, format ? 5 : 4, format ? 2 : 3);
    return bytes == 2 ? number(code, format ? 8 : 5, format ? 7 : 10) : number(code >> 13, 8, 10);
}
inline double scale(uint32_t column, int line, int byte_of_word, bool powers) {
    const uint32_t code = memory[line % 32 + 32 * (line / 8 % 4)][column + line / 32] >> 8 * byte_of_word & 255;
    return powers ? ldexp(1, (int)code - 127) : number(code & 127, 4, 3);
}
inline void multiply(const Instruction& one) {
    const int m = (one.id >> 24 & 31) << 4, n = (one.id >> 17 & 63) << 3, terms = one.kind ? 32 / one.kind : 64;
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            float sum;
            memcpy(&sum, &memory[i][one.d + j], 4);
            double total = sum;
            for (int k = 0; k < terms; ++k) {
                double p = element(one.a, i, k, one.kind, one.id >> 7 & 7) * element(one.b, j, k, one.kind, one.id >> 10 & 7);
                if (one.what == SCALED) {
                    const bool powers = one.id >> 23 & 1;
                    p *= scale(one.scale_a, i, (one.id >> 29 & 3) + k / one.block, powers) * scale(one.scale_b, j, (one.id >> 4 & 3) + k / one.block, powers);
                }
                total += p;
            }
            sum = (float)total;
            memcpy(&memory[i][one.d + j], &sum, 4);
        }
}
inline void run(const Instruction& one) {
    if (one.what == COPY)
        for (int lane = 0; lane < 128; ++lane)
            for (int i = 0; i < 16; ++i) ((uint8_t*)&memory[lane][one.d])[i] = byte(one.a, lane % 32, i);
    else if (one.what == COMMIT) ++*one.barrier;
    else multiply(one);
}

}  // namespace machine

namespace cute {

template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
struct half_t {};
struct bfloat16_t {};
struct tfloat32_t {};
struct float_e4m3_t {};
struct float_e5m2_t {};
struct float_e2m1_t {};
struct float_ue8m0_t {};
struct float_ue4m3_t {};
inline bool elect_one_sync() { return threadIdx.x % 32 == 0; }
inline uint32_t cast_smem_ptr_to_uint(const void* p) { return (uint32_t)((const uint8_t*)p - machine::window()); }
inline void tma_store_fence() {}
inline void initialize_barrier(uint64_t& barrier, int) { barrier = 0; }
// Until the phase of this parity is complete.
inline void wait_barrier(uint64_t& barrier, int parity) {
    while ((int)(barrier & 1) == parity) {
        if (machine::first != machine::last) machine::run(machine::queue[machine::first++ % (1 << 14)]);
        else gemmsim_host_sync();
    }
}
namespace TMEM {
struct Allocator1Sm {
    void allocate(int, uint32_t* place) { *place = machine::BASE; }
    void release_allocation_lock() {}
    void free(uint32_t, int) {}
};
}  // namespace TMEM

namespace UMMA {
enum class Major { K, MN };
struct InstrDescriptorBlockScaled {
    uint32_t rest, a_sf_id_, b_sf_id_;
    operator uint32_t() const { return rest | a_sf_id_ << 29 | b_sf_id_ << 4; }
};
template <class T> constexpr uint32_t format_of() { return __is_same(T, float_e5m2_t) || __is_same(T, bfloat16_t) || __is_same(T, float_e2m1_t) ? 1 : __is_same(T, tfloat32_t) ? 2 : 0; }
template <class A, class B, int M, int N> constexpr uint32_t descriptor() { return format_of<A>() << 7 | format_of<B>() << 10 | (N >> 3) << 17 | (M >> 4) << 24; }
template <class A, class B, class C, int M, int N, Major, Major> uint32_t make_instr_desc() { return descriptor<A, B, M, N>() | 1 << 4; }
template <class A, class B, class C, class S, int M, int N, Major, Major> InstrDescriptorBlockScaled make_instr_desc_block_scaled() {
    return {descriptor<A, B, M, N>() | (uint32_t)__is_same(S, float_ue8m0_t) << 23, 0, 0};
}
}  // namespace UMMA

inline void issue(machine::What what, uint64_t a, uint64_t b, uint64_t id, uint32_t d, uint32_t scale_a, uint32_t scale_b, int kind, int block) {
    if (elect_one_sync()) machine::put({what, a, b, (uint32_t)(id >> 32), d, scale_a, scale_b, nullptr, kind, block});
}
template <int BYTES> struct Unscaled {
    static void fma(uint64_t a, uint64_t b, uint32_t d, uint32_t, uint64_t id) { issue(machine::MMA, a, b, id, d, 0, 0, BYTES, 1); }
};
template <class A, class B, class C, int M, int N, UMMA::Major, UMMA::Major> struct SM100_MMA_F16BF16_SS : Unscaled<2> {};
template <class A, class B, class C, int M, int N, UMMA::Major, UMMA::Major> struct SM100_MMA_TF32_SS : Unscaled<4> {};
struct SM100_MMA_F8F6F4_SS : Unscaled<1> {};
template <int BYTES, int BLOCK> struct BlockScaled {
    static void fma(uint64_t a, uint64_t b, uint32_t d, uint32_t, uint64_t id, uint32_t scale_a, uint32_t scale_b) {
        issue(machine::SCALED, a, b, id, d, scale_a, scale_b, BYTES, BLOCK);
    }
};
template <class A, class B, class C, class S, int M, int N, UMMA::Major, UMMA::Major> struct SM100_MMA_MXF8F6F4_SS : BlockScaled<1, 32> {};
template <class A, class B, class C, class S, int M, int N, int VS, UMMA::Major, UMMA::Major> struct SM100_MMA_MXF4_SS : BlockScaled<0, VS> {};

}  // namespace cute
