// cublasGemmEx for the host: column-major, naive, in the types whose sums a test can predict. It keeps what it was told
// last, and its math and pointer modes, so that tests see what a call leaves behind.
#include <stdint.h>
#include <string.h>

extern "C" {
struct Last {
    int64_t calls, m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c, streams_set;
    int op_a, op_b, type_a, type_b, type_c, compute, algorithm, math_mode, pointer_mode;
    void *handle, *stream;
    uint64_t alpha, beta;
};
Last fake_last;
int fake_math = 3, fake_pointer = 1, fake_status = 0;

int cublasSetStream_v2(void* h, void* s) { fake_last.handle = h, fake_last.stream = s, ++fake_last.streams_set; return 0; }
int cublasGetStream_v2(void*, void** s) { *s = fake_last.stream; return 0; }
int cublasGetMathMode(void*, int* m) { *m = fake_math; return 0; }
int cublasSetMathMode(void*, int m) { fake_math = m; return 0; }
int cublasGetPointerMode_v2(void*, int* m) { *m = fake_pointer; return 0; }
int cublasSetPointerMode_v2(void*, int m) { fake_pointer = m; return 0; }

// Of numbers that are normal and representable in binary16, which those of the tests are.
static float of_half(uint16_t h) {
    const uint32_t bits = (h & 0x7FFF) ? ((uint32_t)(h & 0x8000) << 16) | (((uint32_t)(h & 0x7FFF) << 13) + (112u << 23)) : (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint16_t to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (bits & 0x7FFFFFFF) ? (bits >> 16 & 0x8000) | ((bits & 0x7FFFFFFF) - (112u << 23)) >> 13 : bits >> 16;
}

static double load(const void* p, int type, int64_t i) {
    switch (type) {
        case 2: return of_half(((const uint16_t*)p)[i]);
        case 0: return ((const float*)p)[i];
        case 1: return ((const double*)p)[i];
        case 3: return ((const int8_t*)p)[i];
        case 14: {
            const uint32_t bits = (uint32_t)((const uint16_t*)p)[i] << 16;
            float f;
            memcpy(&f, &bits, 4);
            return f;
        }
    }
    return 0;
}
static void store(void* p, int type, int64_t i, double x) {
    if (type == 0) ((float*)p)[i] = (float)x;
    if (type == 1) ((double*)p)[i] = x;
    if (type == 2) ((uint16_t*)p)[i] = to_half((float)x);
    if (type == 10) ((int32_t*)p)[i] = (int32_t)x;
}

int cublasGemmStridedBatchedEx_64(void* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, int type_a,
                                  int64_t lda, long long sa, const void* b, int type_b, int64_t ldb, long long sb, const void* beta, void* c,
                                  int type_c, int64_t ldc, long long sc, int64_t batch, int compute, int algorithm) {
    Last& l = fake_last;
    l.calls++, l.handle = h, l.m = m, l.n = n, l.k = k, l.lda = lda, l.ldb = ldb, l.ldc = ldc, l.batch = batch;
    l.stride_a = sa, l.stride_b = sb, l.stride_c = sc, l.op_a = ta, l.op_b = tb, l.type_a = type_a, l.type_b = type_b, l.type_c = type_c;
    l.compute = compute, l.algorithm = algorithm, l.math_mode = fake_math, l.pointer_mode = fake_pointer;
    const int bytes = compute == 64 || compute == 65 ? 2 : compute == 70 || compute == 71 ? 8 : 4;
    l.alpha = l.beta = 0;
    memcpy(&l.alpha, alpha, bytes), memcpy(&l.beta, beta, bytes);
    if (fake_status) return fake_status;
    if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return 7;  // as the real one: leading dimension too small
    for (int64_t q = 0; q < batch; ++q)
        for (int64_t j = 0; j < n; ++j)
            for (int64_t i = 0; i < m; ++i) {
                double s = 0;
                for (int64_t t = 0; t < k; ++t)
                    s += load(a, type_a, q * sa + (ta ? i * lda + t : t * lda + i)) * load(b, type_b, q * sb + (tb ? t * ldb + j : j * ldb + t));
                store(c, type_c, q * sc + j * ldc + i, s);
            }
    return 0;
}

int cublasGemmEx_64(void* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, int type_a, int64_t lda,
                    const void* b, int type_b, int64_t ldb, const void* beta, void* c, int type_c, int64_t ldc, int compute, int algorithm) {
    return cublasGemmStridedBatchedEx_64(h, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute,
                                         algorithm);
}
}
