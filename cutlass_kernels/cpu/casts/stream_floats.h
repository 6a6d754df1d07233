// This file copies floats past the caches, for results that are not read again soon.
#pragma once
#include "vec.h"

namespace gemmsim::NS {

[[maybe_unused]] static void stream_floats(float* dst, const float* src, int64_t n) {
#if ISA_AVX512 || ISA_AVX2
    if (((uintptr_t)dst & (WIDTH - 1)) == 0 && n % (WIDTH / 4) == 0) {
        for (int64_t i = 0; i < n; i += WIDTH / 4) {
#if ISA_AVX512
            _mm512_stream_ps(dst + i, _mm512_loadu_ps(src + i));
#else
            _mm256_stream_ps(dst + i, _mm256_loadu_ps(src + i));
#endif
        }
        return;
    }
#endif
    memcpy(dst, src, (size_t)n * 4);
}

}  // namespace gemmsim::NS
