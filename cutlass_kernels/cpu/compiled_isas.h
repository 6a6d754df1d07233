// This file chooses among the versions of a function that were compiled for each instruction set. A build for one
// machine compiles the widest set of that machine and the narrowest one (GEMMSIM_ISAS in CMakeLists.txt).
#pragma once
#include <string.h>

// The version for the instruction set that every processor of this architecture has.
#if defined(GEMMSIM_NEON)
#define GEMMSIM_NARROWEST(function) function##_neon
#else
#define GEMMSIM_NARROWEST(function) function##_baseline
#endif

#if defined(GEMMSIM_HAS_AVX512)
#define GEMMSIM_AVX512_OR(function, name, otherwise) (!strcmp(name, "avx512") ? function##_avx512 : otherwise)
#else
#define GEMMSIM_AVX512_OR(function, name, otherwise) otherwise
#endif
#if defined(GEMMSIM_HAS_AVX2)
#define GEMMSIM_AVX2_OR(function, name, otherwise) (!strcmp(name, "avx2") ? function##_avx2 : otherwise)
#else
#define GEMMSIM_AVX2_OR(function, name, otherwise) otherwise
#endif

// The version of `function` for the kernels called `name` (Isa::name).
#define GEMMSIM_VERSION(function, name) GEMMSIM_AVX512_OR(function, name, GEMMSIM_AVX2_OR(function, name, GEMMSIM_NARROWEST(function)))
