// The terms of a block's outputs: chunks of both operands, cast and widened to the carrier, in shared memory. The next chunk
// is read from global memory while the last one is used; there are two buffers, so that one barrier a chunk suffices.
#pragma once
#include "gemm/products.h"
#include "gemmsim/device/block.h"
#include "gemmsim/device/packed.h"
#include "gemmsim/philox.h"

namespace gemmsim {

// At least a magnitude, as the pattern of a float; that of infinity or NaN if it is not finite.
GEMMSIM_HD uint32_t magnitude_up(float x) { return to_bits(x) & 0x7FFFFFFFu; }
GEMMSIM_HD uint32_t magnitude_up(double x) { return (to_bits((float)x) & 0x7FFFFFFFu) + 1; }

template <class X, class Y> constexpr bool SAME = false;
template <class X> constexpr bool SAME<X, X> = true;

GEMMSIM_HD int trailing_zeros(uint32_t x) {
#if defined(__CUDA_ARCH__)
    return __ffs((int)x) - 1;
#else
    return __builtin_ctz(x);
#endif
}

// What is known of an operand's part in a chunk, or in a thread's share of it.
struct Extent {
    uint32_t most = 0;             // largest magnitude, as magnitude_up gives it
    uint32_t bits = 0;             // union of the patterns
    uint32_t least = 0xFFFFFFFFu;  // smallest magnitude's pattern less one; zeros do not count

    GEMMSIM_HD void join(const Extent& x) {
        most = x.most > most ? x.most : most;
        bits |= x.bits;
        least = x.least < least ? x.least : least;
    }
    // Significand bits that suffice for all.
    GEMMSIM_HD int width() const { return 24 - trailing_zeros(bits | 0x800000u); }
    // All are multiples of two to this power.
    GEMMSIM_HD int quantum() const {
        const int field = (int)((least + 1) >> 23);
        return least == 0xFFFFFFFFu ? 1000 : (field > 1 ? field : 1) - 127 - (width() - 1);
    }
};

// What a run wants to know of each chunk: nothing, the largest magnitudes, everything (of float panels).
enum Measure : int { NOTHING = 0, MAGNITUDES = 1, EXTENTS = 2 };

// One operand: rows of A or columns of B are "lines"; DEPTH terms of N lines each.
template <class T, DType DTYPE, CodeFormat CODE, Cast CAST, int N, int DEPTH, int LAYOUT, bool PERMUTED> struct Panel {
    typedef typename Storage<DTYPE>::Word Word;
    typedef typename Storage<DTYPE == F64 || CODE.wide ? F64 : F32>::Word Value;
    // Two codes a byte along the terms: a byte is read for each of them.
    static constexpr int PAIRS = CODE.packed;
    static_assert(!PAIRS || (LAYOUT == ANY_STRIDES && DEPTH % 2 == 0));
    static constexpr int EACH = N * DEPTH / GEMM_THREADS, PITCH = N + 4;  // elements of a thread; of a row in shared memory
    // Neighbours read at once, and how often.
    static constexpr int WIDE = 16 / sizeof(Word), VECTOR = LAYOUT == ANY_STRIDES ? 1 : WIDE < EACH ? WIDE : EACH, READS = EACH / VECTOR;
    // What neighbouring lines in shared memory may be written at: rows of 16-bit numbers start at multiples of 8 bytes only.
    static constexpr int ROW = VECTOR * (int)sizeof(T), ROW_ALIGNMENT = LAYOUT != LINES_CONTIGUOUS || ROW > 16 ? (int)sizeof(T)
                                                                        : PITCH * (int)sizeof(T) % ROW         ? 8
                                                                                                               : ROW;
    struct alignas(VECTOR * sizeof(Word)) Words {
        Word v[VECTOR];
    };

    const Word* base;
    int64_t step, chunk;  // between a thread's reads of a chunk; from a chunk to the next
    int64_t term_stride, line_step;
    uint32_t inside;      // which of a thread's lines are in the matrix, a bit each
    int64_t k;
    int term, term_step, place, place_step;
    Words held[READS];

    // A thread's elements run along the direction in which the tensor is contiguous.
    GEMMSIM_HD void start(const void* data, int64_t offset, int64_t line0, int64_t lines, int64_t line_stride, int64_t stride,
                          int64_t depth, int tid) {
        const int64_t s = stride < 0 ? -stride : stride, l = line_stride < 0 ? -line_stride : line_stride;
        const bool along_terms = LAYOUT == ANY_STRIDES ? s <= l : LAYOUT == TERMS_CONTIGUOUS;
        // Threads side by side take neighbours; there are as many as cover one line, or one term.
        const int across = along_terms ? DEPTH / VECTOR : N / VECTOR, first = tid % across * VECTOR, other = tid / across,
                  pace = GEMM_THREADS / across;
        const int line = along_terms ? other : first, lines_apart = along_terms ? pace : 0;
        term = along_terms ? first : other;
        term_step = along_terms ? 0 : pace;
        place = term * PITCH + line;
        place_step = term_step * PITCH + lines_apart;
        line_step = lines_apart * line_stride;
        term_stride = stride;
        base = (const Word*)data + offset + (line0 + line) * line_stride + (PERMUTED ? 0 : (term >> PAIRS) * stride);
        step = line_step + (term_step >> PAIRS) * stride;  // steps of terms are even
        chunk = (DEPTH >> PAIRS) * stride;
        k = depth;
        inside = 0;
        GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) inside |= line0 + line + e * lines_apart < lines ? 1u << e : 0u;
    }

    // The next DEPTH terms, from `first` on, of the order in which they are read. Beyond the matrix there are zeros.
    GEMMSIM_HD void fetch(int64_t first, const int32_t* order) {
        constexpr uint32_t all = (1u << READS) - 1;
        if constexpr (PERMUTED) {
            GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) {
                const int64_t at = first + term + e * term_step;
                if constexpr (PAIRS)
                    held[e].v[0] = (inside >> e & 1) && at < k
                                       ? (Word)(base[e * line_step + (order[at] >> 1) * term_stride] >> 4 * (order[at] & 1))
                                       : (Word)0;
                else held[e].v[0] = (inside >> e & 1) && at < k ? base[e * line_step + order[at] * term_stride] : (Word)0;
            }
        } else {
            const Word* p = base;
            if (inside == all && first + DEPTH <= k) {
                GEMMSIM_UNROLL for (int e = 0; e < READS; ++e, p += step) held[e] = *(const Words*)p;
            } else {
                GEMMSIM_UNROLL for (int e = 0; e < READS; ++e, p += step) {
                    if ((inside >> e & 1) && first + term + e * term_step < k) held[e] = *(const Words*)p;
                    else GEMMSIM_UNROLL for (int i = 0; i < VECTOR; ++i) held[e].v[i] = (Word)0;
                }
            }
            base += chunk;
        }
    }

    // What was fetched, to shared memory.
    template <int MEASURE> GEMMSIM_HD Extent store(T* panel) const {
        Extent extent;
        GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) {
            struct alignas(ROW_ALIGNMENT) Row {
                T v[VECTOR];
            } row;
            GEMMSIM_UNROLL for (int i = 0; i < VECTOR; ++i) {
                const Value v = value(held[e].v[i]);
                if constexpr (CAST.flags & PRESENT) put<MEASURE>(round_cast<CAST>(v, 0), row.v[i], extent);
                else put<MEASURE>(v, row.v[i], extent);
            }
            T* const to = panel + place + e * place_step;
            if constexpr (LAYOUT == LINES_CONTIGUOUS) *(Row*)to = row;
            else GEMMSIM_UNROLL for (int i = 0; i < VECTOR; ++i) to[i * PITCH] = row.v[i];
        }
        return extent;
    }

private:
    GEMMSIM_HD Value value(Word w) const {
        if constexpr (DTYPE != CODES) return load_value<DTYPE, Value>(w);
        else return decode<CODE, Value>(PAIRS && !PERMUTED ? w >> 4 * (term & 1) : w);
    }
    template <int MEASURE, class V> static GEMMSIM_HD void put(V v, T& to, Extent& extent) {
        if constexpr (SAME<T, Packed<F16>>) to.word = half_nearest((float)v);
        else if constexpr (SAME<T, Packed<BF16>>) to.word = bf16_nearest((float)v);
        else if constexpr (SAME<T, int32_t>) to = v - v == 0 ? (int32_t)v : NOT_WHOLE;
        else to = (T)v;
        if constexpr (MEASURE != NOTHING) {
            const uint32_t u = magnitude_up(v);
            extent.most = u > extent.most ? u : extent.most;
        }
        if constexpr (MEASURE == EXTENTS) {
            const uint32_t u = magnitude_up((float)v);
            extent.bits |= u;
            extent.least = u - 1 < extent.least ? u - 1 : extent.least;
        }
    }
};

// The cast that loading an operand has to do.
GEMMSIM_HD constexpr Cast cast_on_load(const Cast& c, int32_t done) { return done ? Cast{} : c; }

template <class T, DType DTYPE, CodeFormat CODE, Cast CAST, int N, int DEPTH, bool PERMUTED> struct GatheredPanel;

template <GemmConfig K> struct Stream : Products<K> {
    typedef
        typename Steps<K>::template Pick<typename Steps<K>::T, int32_t, SmallIntegers<K>::POSSIBLE || K.table.columns != 0>::type Number;
    typedef typename Steps<K>::template Pick<Number, Packed<PackedFormat<K>::DTYPE>, K.packed != 0>::type T;  // of the panels
    static constexpr int DEPTH = gemm_depth(K), M = GEMM_SIDE * K.rows, N = GEMM_SIDE * K.cols, WARPS = GEMM_THREADS / 32;
    typedef Panel<T, K.a, K.code_a, cast_on_load(K.cast_a, K.done_a), M, DEPTH, K.layout_a, K.permuted != 0> StridedA;
    typedef GatheredPanel<T, K.a, K.code_a, cast_on_load(K.cast_a, K.done_a), M, DEPTH, K.permuted != 0> GatheredA;
    typedef typename Steps<K>::template Pick<StridedA, GatheredA, K.gathered != 0>::type PanelA;
    typedef Panel<T, K.b, K.code_b, cast_on_load(K.cast_b, K.done_b), N, DEPTH, K.layout_b, K.permuted != 0> PanelB;

    struct Buffer {
        alignas(16) T a[DEPTH * PanelA::PITCH];
        alignas(16) T b[DEPTH * PanelB::PITCH];
        struct alignas(16) Words {
            uint32_t most[WARPS], bits[WARPS], least[WARPS];
        } measured_a, measured_b;
    };
    // The buffers, and a table of products behind them.
    static constexpr unsigned BYTES = 2 * sizeof(Buffer) + Products<K>::TABLE_BYTES;
    static GEMMSIM_HD uint8_t* table() { return shared_memory() + 2 * sizeof(Buffer); }

    PanelA a;
    PanelB b;
    const int32_t* order;
    Buffer* buffer;  // the one in use; the other one is `other()`
    int64_t base, k;  // first term of the buffer in use
    int tid;

    GEMMSIM_HD Buffer* other() const { return (Buffer*)shared_memory() + (buffer == (Buffer*)shared_memory() ? 1 : 0); }

    // The first chunk, for a thread of a block that has just met at a barrier.
    template <int MEASURE> GEMMSIM_HD void start() {
        buffer = (Buffer*)shared_memory() + 1;
        base = -DEPTH;
        if (k == 0) return;
        a.fetch(0, order);
        b.fetch(0, order);
        advance<MEASURE>();
    }

    template <int MEASURE> GEMMSIM_HD void advance() {
        Buffer* const next = other();
        note<MEASURE>(next->measured_a, a.template store<MEASURE>(next->a));
        note<MEASURE>(next->measured_b, b.template store<MEASURE>(next->b));
        block_sync();
        buffer = next;
        base += DEPTH;
        if (base + DEPTH < k) {
            a.fetch(base + DEPTH, order);
            b.fetch(base + DEPTH, order);
        }
    }

    // Makes the chunk that holds term `at` the one in use; terms are asked for in order.
    template <int MEASURE> GEMMSIM_HD void note(typename Buffer::Words& words, const Extent& mine) const {
        if constexpr (MEASURE != NOTHING) warp_reduce<Reduce::MOST>(words.most, tid, mine.most);
        if constexpr (MEASURE == EXTENTS) {
            warp_reduce<Reduce::BITS>(words.bits, tid, mine.bits);
            warp_reduce<Reduce::LEAST>(words.least, tid, mine.least);
        }
    }
    template <int MEASURE> static GEMMSIM_HD Extent extent(const typename Buffer::Words& words) {
        Extent all;
        GEMMSIM_UNROLL for (int w = 0; w < WARPS; ++w) {
            if constexpr (MEASURE == EXTENTS) all.join(Extent{words.most[w], words.bits[w], words.least[w]});
            else all.most = words.most[w] > all.most ? words.most[w] : all.most;
        }
        return all;
    }

    template <int MEASURE> GEMMSIM_HD void reach(int64_t at) {
        if (at >= base + DEPTH) advance<MEASURE>();
    }

    // At least the product of any two magnitudes; infinity or NaN if one is not finite.
    static GEMMSIM_HD float largest_product(const Extent& x, const Extent& y) {
        const float p = mul_rn(from_bits<float>(x.most), from_bits<float>(y.most));
        if (x.most >= 0x7F800000u || y.most >= 0x7F800000u) return from_bits<float>(0x7F800000u);
        return add_rn(mul_rn(p, 1.000001f), 0x1p-126f);
    }
};

// Which outputs a thread computes: groups of up to four neighbours, so that it reads 16 bytes at once.
template <int COUNT> struct Lines {
    static constexpr int GROUP = COUNT < 4 ? COUNT : 4;
    static GEMMSIM_HD constexpr int line(int side, int i) { return (i / GROUP) * GROUP * GEMM_SIDE + side * GROUP + i % GROUP; }

    template <class T> static GEMMSIM_HD void read(const T* panel, int side, T (&x)[COUNT]) {
        struct alignas(GROUP * sizeof(T) < 16 ? GROUP * sizeof(T) : 16) Vector {
            T v[GROUP];
        };
        GEMMSIM_UNROLL for (int g = 0; g < COUNT / GROUP; ++g) {
            const Vector v = *(const Vector*)(panel + g * GROUP * GEMM_SIDE + side * GROUP);
            GEMMSIM_UNROLL for (int i = 0; i < GROUP; ++i) x[g * GROUP + i] = v.v[i];
        }
    }
};

// Where a thread's outputs lie in the whole product, and the bits that belong to them.
template <GemmConfig K> struct Place {
    int64_t row0, col0;  // of the block; rows count those of all batches
    int64_t line0;       // its first row in its own matrix
    int ty, tx;
    uint64_t seed;
    const int32_t* key;

    GEMMSIM_HD uint64_t row(int i) const { return (uint64_t)(row0 + Lines<K.rows>::line(ty, i)); }
    GEMMSIM_HD int64_t line(int i) const { return line0 + Lines<K.rows>::line(ty, i); }
    GEMMSIM_HD uint32_t col(int j) const { return (uint32_t)(col0 + Lines<K.cols>::line(tx, j)); }
    GEMMSIM_HD int64_t k_of(int64_t position) const { return K.permuted && key ? key[position] : position; }
    GEMMSIM_HD uint32_t draw(int i, int j, int64_t index, int site, int bits) const {
        return draw_step(seed, row(i), col(j), (uint64_t)index, site, bits);
    }
};

// A number for each output of a thread.
template <GemmConfig K> struct Totals {
    typename Steps<K>::T v[K.rows][K.cols];
};

}  // namespace gemmsim
