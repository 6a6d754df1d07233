// This file casts whole tensors element by element in one pass: any strides, dtypes and number of elements.
#include "api.h"
#include "float_state.h"
#include "gemmsim/philox.h"

namespace gemmsim {

static int64_t size_of(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

// Dimensions are merged where both tensors allow it. A deterministic cast may visit elements in any order, so its
// dimensions are first sorted by the destination's strides.
struct Layout {
    int dims = 0;
    int64_t size[MAX_BATCH_DIMS], src[MAX_BATCH_DIMS], dst[MAX_BATCH_DIMS];

    Layout(const QuantizeArgs& q, bool free_order) {
        for (int d = 0; d < q.dims; ++d) {
            if (q.size[d] == 1) continue;
            size[dims] = q.size[d];
            src[dims] = q.src_stride[d];
            dst[dims] = q.dst_stride[d];
            ++dims;
        }
        if (free_order)
            for (int i = 1; i < dims; ++i)
                for (int j = i; j > 0 && dst[j - 1] < dst[j]; --j) swap(j - 1, j);
        int out = 0;
        for (int d = 1; d < dims; ++d) {
            if (src[out] == src[d] * size[d] && dst[out] == dst[d] * size[d]) {
                size[out] *= size[d];
                src[out] = src[d];
                dst[out] = dst[d];
            } else {
                ++out;
                size[out] = size[d];
                src[out] = src[d];
                dst[out] = dst[d];
            }
        }
        if (dims == 0) {
            size[0] = 1;
            src[0] = dst[0] = 1;
        }
        dims = dims ? out + 1 : 1;
    }
    void swap(int i, int j) {
        int64_t t = size[i];
        size[i] = size[j];
        size[j] = t;
        t = src[i];
        src[i] = src[j];
        src[j] = t;
        t = dst[i];
        dst[i] = dst[j];
        dst[j] = t;
    }
};

constexpr int64_t PIECE = 1 << 14, CHUNK = 1024;

struct Quantizer {
    const Isa& isa;
    const QuantizeArgs& q;
    const int carrier;
    const bool direct, stream;

    Quantizer(const Isa& i, const QuantizeArgs& a, bool contiguous, int64_t n)
        : isa(i), q(a), carrier(a.src_dtype == F64 || a.dst_dtype == F64 ? 1 : 0),
          direct(contiguous && a.src_dtype == a.dst_dtype && a.src_dtype <= F64 && a.cast.mode < SR),
          stream(n * size_of(a.dst_dtype) >= (4 << 20)) {}

    // Casts n elements from the given element offsets. `index` is the first one's row-major position.
    void piece(int64_t at_src, int64_t at_dst, int64_t step_src, int64_t step_dst, int64_t n, uint64_t index) const {
        const char* s = (const char*)q.src + at_src * size_of(q.src_dtype);
        char* d = (char*)q.dst + at_dst * size_of(q.dst_dtype);
        if (direct && isa.quantize(carrier, s, d, n, q.cast, stream)) return;
        alignas(64) char work[CHUNK * 8];
        for (int64_t i = 0; i < n; i += CHUNK) {
            const int64_t c = n - i < CHUNK ? n - i : CHUNK;
            isa.load(carrier, s + i * step_src * size_of(q.src_dtype), q.src_dtype, step_src, c, work);
            isa.round(carrier, work, c, q.cast, q.seed, q.start + index + i, q.site);
            isa.save(carrier, work, c, d + i * step_dst * size_of(q.dst_dtype), q.dst_dtype, step_dst);
        }
    }
};

int run_quantize(const Isa& isa, const QuantizeArgs& q) {
    int64_t n = 1;
    for (int d = 0; d < q.dims; ++d) n *= q.size[d];
    if (n == 0) return 0;
    const Layout l(q, q.cast.mode < SR);
    const int last = l.dims - 1;
    const Quantizer job(isa, q, l.src[last] == 1 && l.dst[last] == 1, n);
    const int64_t inner = l.size[last], pieces = (inner + PIECE - 1) / PIECE, outer = n / inner;
    [[maybe_unused]] const int threads = n < (1 << 16) ? 1 : q.threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const FloatState state;
#pragma omp for schedule(static)
        for (int64_t task = 0; task < outer * pieces; ++task) {
            int64_t row = task / pieces, at_src = 0, at_dst = 0;
            const int64_t first = task % pieces * PIECE, count = inner - first < PIECE ? inner - first : PIECE;
            const uint64_t index = (uint64_t)(row * inner + first);
            for (int d = last - 1; d >= 0; --d) {
                at_src += row % l.size[d] * l.src[d];
                at_dst += row % l.size[d] * l.dst[d];
                row /= l.size[d];
            }
            job.piece(at_src + first * l.src[last], at_dst + first * l.dst[last], l.src[last], l.dst[last], count, index);
        }
    }
    return 0;
}

}  // namespace gemmsim
