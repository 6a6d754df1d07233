// Plain records that every backend shares. They state as numbers what a rounding does. They suit host and device: no standard
// library, no exceptions, trivially copyable.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GEMMSIM_HD __host__ __device__ __forceinline__
#else
#define GEMMSIM_HD inline
#endif

#if !defined(__CUDACC_RTC__)
#include <stdint.h>
#else
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned short uint16_t;
typedef unsigned char uint8_t;
#endif

namespace gemmsim {

// The order is part of the C ABI (gemmsim/lowering/abi_constants.py mirrors it). The two modes below zero round to nearest with
// ties toward plus (RNU) and minus infinity (RND). Their casts set CODE_PARITY, which excludes the vector kernels of products.
enum Mode : int32_t { RNU = -2, RND = -1, RNE = 0, RNA = 1, RTZ = 2, RU = 3, RD = 4, RO = 5, SR = 6, SRB = 7, SRC = 8 };

enum CastFlags : int32_t {
    NO_SUBNORMALS = 1,  // the only values below 2^emin are 0 and 2^emin
    NEG_ZERO = 2,       // the format has signed zeros
    CODE_PARITY = 4,    // p == 1 and ties go to the even code (P3109, e8m0), not the even significand
    NO_ZERO = 8,        // e8m0: what would be zero becomes the smallest value
    // An irregular value set (below): what rounds up to the next binade stays at the last value of its own.
    NO_CARRY = 16,
    PRESENT = 32,       // the cast exists; a record without it means "leave the value alone"
    // Irregular value sets (grid.h). All of them set CODE_PARITY, too, which excludes every vector kernel of products.
    SUPERNORMAL = 64,     // bare powers of two below and above the binades with p bits; flags >> GRID_SHIFT states where
    EVEN_EXPONENT = 128,  // of two powers of two equally near, the even exponent; else the larger one
    FIRST_IS_ZERO = 256,  // 2^emin is not in the format: the smallest positive value is the next one
    NEGATIVE_NAN = 512,   // numbers below zero are NaN, before any rounding
    ANY_GRID = NO_CARRY | SUPERNORMAL | FIRST_IS_ZERO | NEGATIVE_NAN
};
// SUPERNORMAL stores two fields of 11 bits: how far the lowest binade of p bits is above emin, then how far the highest one is
// below emax. emin and emax are set so that emin - p + 1 is the exponent of the smallest value and emax that of the largest.
enum { GRID_SHIFT = 10, GRID_MASK = 0x7FF };

// Rounding to multiples of 2^(max(e, emin) - p + 1), and the results past both ends. Fixed point uses the same record: its emin is
// at or above the largest exponent, so that every value is a multiple of 2^(emin-p+1).
struct Cast {
    int32_t p, emin;   // significand bits; exponent of the smallest normal
    int32_t mode;      // Mode
    int32_t rbits;     // random bits of SR, SRB, SRC
    int32_t flags;     // CastFlags
    int32_t emax;      // exponent of the largest finite value
    double lo, hi;               // finite range, both values of the format
    double over_neg, over_pos;   // a finite input whose rounding is below lo / above hi
    double inf_neg, inf_pos;     // an infinite input
};

// The stream of a random draw. It is part of the definition of the result (docs/reference/random_bits.md).
enum Site : int32_t {
    SITE_A = 0,
    SITE_B = 1,
    SITE_PRODUCT = 2,
    SITE_ADD = 3,
    SITE_OUT = 4,
    SITE_COMBINE = 5,
    SITE_WORKSPACE = 6,
    SITE_FINAL = 7,
    SITE_STEP = 8,
    SITE_QUANTIZE = 16
};

enum DType : int32_t { F32 = 0, F64 = 1, F16 = 2, BF16 = 3 };

}  // namespace gemmsim
