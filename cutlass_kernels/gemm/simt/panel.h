// One operand's chunks: read from global memory, cast and widened to the carrier, measured, and put into shared memory, a term's
// lines side by side.
#pragma once
#include "gemm/simt/table_products.h"
#include "gemmsim/device/block.h"
#include "gemmsim/device/packed.h"

namespace gemmsim {

// Keeps a number that the compiler would compute anew in each chunk.
template <class X> GEMMSIM_HD void keep(X& x) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(X) == 8) asm volatile("" : "+l"(x));
    else asm volatile("" : "+r"(x));
#endif
}

template <class X, class Y, bool FIRST> struct Choice {
    typedef X type;
};
template <class X, class Y> struct Choice<X, Y, false> {
    typedef Y type;
};

// At least a magnitude, as the pattern of a float; that of infinity or NaN if it is not finite.
GEMMSIM_HD uint32_t magnitude_up(float x) { return to_bits(x) & 0x7FFFFFFFu; }
GEMMSIM_HD uint32_t magnitude_up(double x) { return (to_bits((float)x) & 0x7FFFFFFFu) + 1; }

// The larger of a pattern without sign and |x|'s, where NaN, as some pattern of it, is the largest.
GEMMSIM_HD uint32_t larger_magnitude(uint32_t most, float x) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(from_bits<float>(most)), "f"(fabsf(x)));
    return to_bits(r);
#else
    const uint32_t u = magnitude_up(x);
    return u > most ? u : most;
#endif
}

// The same of two bfloat16 in a word, each, by magnitude: with any signs.
GEMMSIM_HD uint32_t larger_pair(uint32_t most, uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
    uint32_t r;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(most), "r"(x));
    return r;
#elif defined(__CUDA_ARCH__)
    uint32_t r;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(most), "r"(x & 0x7FFF7FFFu));
    return r;
#else
    const uint32_t u = x & 0x7FFF7FFFu, high = u >> 16, low = u & 0xFFFFu, most_high = most >> 16, most_low = most & 0xFFFFu;
    return (high > most_high ? high : most_high) << 16 | (low > most_low ? low : most_low);
#endif
}

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
    uint32_t least = 0xFFFFFFFFu;  // smallest magnitude's pattern, doubled, less one; zeros do not count

    GEMMSIM_HD void join(const Extent& x) {
        most = x.most > most ? x.most : most;
        bits |= x.bits;
        least = x.least < least ? x.least : least;
    }
    GEMMSIM_HD void meet(float x) { most = larger_magnitude(most, x); }
    GEMMSIM_HD void meet(double x) {
        const uint32_t u = magnitude_up(x);
        most = u > most ? u : most;
    }
    // Also what the significands and the smallest magnitude are.
    GEMMSIM_HD void look_into(float x) {
        const uint32_t u = to_bits(x), low = u + u - 1;
        bits |= u;
        least = low < least ? low : least;
    }
    // Significand bits that suffice for all.
    GEMMSIM_HD int width() const { return 24 - trailing_zeros(bits | 0x800000u); }
    // All are multiples of two to this power.
    GEMMSIM_HD int quantum() const {
        const int field = (int)((least + 1) >> 24);
        return least == 0xFFFFFFFFu ? 1000 : (field > 1 ? field : 1) - 127 - (width() - 1);
    }
};

// What a run wants to know of each chunk: nothing, the largest magnitudes, everything (of float panels).
enum Measure : int { NOTHING = 0, MAGNITUDES = 1, EXTENTS = 2 };

// How a thread's EACH elements lie where an operand is contiguous along the terms: so many terms of so many neighbouring lines,
// which are read a line at a time and written a term at a time. The fewest instructions: a read takes three with its address.
struct Patch {
    int terms, lines;
};
constexpr Patch patch_of(int each, int widest_read, int widest_write, int depth) {
    Patch best{1, each};
    int fewest = 1 << 30;
    for (int terms = 1; terms <= each && terms <= widest_read && terms <= depth; terms *= 2) {
        const int lines = each / terms, writes = lines < widest_write ? terms : each / widest_write;
        if (3 * lines + writes <= fewest) fewest = 3 * lines + writes, best = Patch{terms, lines};
    }
    return best;
}

// One operand: rows of A or columns of B are "lines"; DEPTH terms of N lines each, for a block of THREADS.
template <class T, DType DTYPE, CodeFormat CODE, Cast CAST, int N, int DEPTH, int THREADS, int LAYOUT, bool PERMUTED> struct Panel {
    typedef typename Storage<DTYPE>::Word Word;
    typedef typename Storage<DTYPE == F64 || CODE.wide ? F64 : F32>::Word Value;
    // Two codes a byte along the terms: a byte is read for each of them.
    static constexpr int PAIRS = CODE.packed;
    static_assert(!PAIRS || (LAYOUT == ANY_STRIDES && DEPTH % 2 == 0));
    static_assert(N * DEPTH % THREADS == 0);
    // Elements of a thread; of a row in shared memory, which starts at a multiple of 16 bytes.
    static constexpr int EACH = N * DEPTH / THREADS, WIDEST = 16 / sizeof(T), PITCH = N + (WIDEST > 4 ? WIDEST : 4);
    static constexpr int SIZE = DEPTH * PITCH;
    // Neighbours read at once, and how often.
    static constexpr int WIDE = 16 / sizeof(Word);
    static constexpr Patch PATCH = patch_of(EACH, WIDE, WIDEST, DEPTH);
    static constexpr int VECTOR = LAYOUT == TERMS_CONTIGUOUS ? PATCH.terms : LAYOUT == ANY_STRIDES ? 1 : WIDE < EACH ? WIDE : EACH;
    static constexpr int READS = EACH / VECTOR;
    // Neighbouring lines written at once.
    static constexpr int ROW = LAYOUT == TERMS_CONTIGUOUS ? READS : LAYOUT == ANY_STRIDES ? 1 : VECTOR, PIECE = ROW < WIDEST ? ROW : WIDEST;
    // As many words of 32 bits as they are: short ones are told apart where they are used.
    static constexpr int SHORT = sizeof(Word) < 4 && VECTOR * sizeof(Word) >= 4 ? 4 / sizeof(Word) : 1;
    typedef typename Choice<uint32_t, Word, (SHORT > 1)>::type Raw;
    struct alignas(VECTOR * sizeof(Word)) Words {
        Raw v[VECTOR / SHORT];
    };
    struct alignas(PIECE * sizeof(T)) Piece {
        T v[PIECE];
    };

    // Whether reads can be copies from memory to memory.
    static constexpr bool COPIES = !PERMUTED && sizeof(Words) >= 4;
    static constexpr int DEPTH_OF = DEPTH;

    const Word *base, *origin;
    int64_t step, chunk;  // between a thread's reads of a chunk; from a chunk to the next
    int64_t term_stride, line_step;
    uint32_t inside;      // which of a thread's lines are in the matrix, a bit each
    int term, term_step, place, place_step;
    Words held[READS];

    // A thread's elements run along the direction in which the tensor is contiguous.
    GEMMSIM_HD void start(const void* data, int64_t offset, int64_t line0, int64_t lines, int64_t line_stride, int64_t stride, int tid) {
        const int64_t s = stride < 0 ? -stride : stride, l = line_stride < 0 ? -line_stride : line_stride;
        const bool along_terms = LAYOUT == ANY_STRIDES ? s <= l : LAYOUT == TERMS_CONTIGUOUS;
        // Threads side by side take neighbours; there are as many as cover one line, or one term.
        const int across = along_terms ? DEPTH / VECTOR : N / VECTOR, first = tid % across * VECTOR, other = tid / across,
                  pace = THREADS / across;
        constexpr bool PATCHES = LAYOUT == TERMS_CONTIGUOUS;
        const int line = PATCHES ? other * READS : along_terms ? other : first, lines_apart = PATCHES ? 1 : along_terms ? pace : 0;
        term = along_terms ? first : other;
        term_step = along_terms ? 0 : pace;
        place = term * PITCH + line;
        place_step = term_step * PITCH + lines_apart;
        line_step = lines_apart * line_stride;
        term_stride = stride;
        origin = (const Word*)data;
        base = (const Word*)data + offset + (line0 + line) * line_stride + (PERMUTED ? 0 : (term >> PAIRS) * stride);
        step = line_step + (term_step >> PAIRS) * stride;
        chunk = (DEPTH >> PAIRS) * stride;
        inside = 0;
        GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) inside |= line0 + line + e * lines_apart < lines ? 1u << e : 0u;
        keep(inside), keep(place);
    }

    // Leaves out the next chunks; what is permuted is read where `fetch` says.
    GEMMSIM_HD void skip(int chunks) {
        if constexpr (!PERMUTED) base += chunks * chunk;
    }

    // The next DEPTH terms, from `first` on, of the order in which they are read, `left` to come. Beyond the matrix there are zeros.
    GEMMSIM_HD void fetch(int first, int left, const int32_t* order) {
        constexpr uint32_t all = (uint32_t)((1ull << READS) - 1);
        if constexpr (PERMUTED) {
            GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) {
                const int64_t at = (int64_t)first + term + e * term_step;
                if constexpr (PAIRS)
                    held[e].v[0] = (inside >> e & 1) && term + e * term_step < left
                                       ? (Word)(base[e * line_step + (order[at] >> 1) * term_stride] >> 4 * (order[at] & 1))
                                       : (Word)0;
                else
                    held[e].v[0] =
                        (inside >> e & 1) && term + e * term_step < left ? base[e * line_step + order[at] * term_stride] : (Word)0;
            }
        } else {
            const Word* p = base;
            if constexpr (PAIRS) {  // steps of terms may be odd
                GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) {
                    const int64_t bytes = ((term + e * term_step) >> 1) - (term >> 1);
                    const bool there = (inside >> e & 1) && term + e * term_step < left;
                    held[e].v[0] = there ? base[e * line_step + bytes * term_stride] : (Word)0;
                }
            } else if (inside == all && left >= DEPTH) {
                GEMMSIM_UNROLL for (int e = 0; e < READS; ++e, p += step) held[e] = *(const Words*)p;
            } else {
                GEMMSIM_UNROLL for (int e = 0; e < READS; ++e, p += step) {
                    if ((inside >> e & 1) && term + e * term_step < left) held[e] = *(const Words*)p;
                    else GEMMSIM_UNROLL for (int i = 0; i < VECTOR / SHORT; ++i) held[e].v[i] = (Raw)0;
                }
            }
            base += chunk;
        }
    }

    // What was fetched, to shared memory.
    template <int MEASURE> GEMMSIM_HD Extent store(T* panel) const {
        Extent extent;
        if constexpr (IN_PAIRS && MEASURE == MAGNITUDES) extent.most = largest_of_pairs();
        if constexpr (LAYOUT == TERMS_CONTIGUOUS)
            GEMMSIM_UNROLL for (int i = 0; i < VECTOR; ++i) GEMMSIM_UNROLL for (int e = 0; e < READS; e += PIECE) {
                Piece piece;
                GEMMSIM_UNROLL for (int j = 0; j < PIECE; ++j) put<MEASURE>(e + j, i, piece.v[j], extent);
                *(Piece*)(panel + place + i * PITCH + e) = piece;
            }
        else GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) GEMMSIM_UNROLL for (int i = 0; i < VECTOR; i += PIECE) {
                Piece piece;
                GEMMSIM_UNROLL for (int j = 0; j < PIECE; ++j) put<MEASURE>(e, i + j, piece.v[j], extent);
                *(Piece*)(panel + place + e * place_step + i) = piece;
            }
        return extent;
    }

private:
    // Largest magnitude of words that are measured as they are read, two at once.
    static constexpr bool IN_PAIRS = DTYPE == BF16 && SHORT == 2 && !(CAST.flags & PRESENT) && PACKED_DTYPE<T> < 0;
    GEMMSIM_HD uint32_t largest_of_pairs() const {
        uint32_t most = 0;
        GEMMSIM_UNROLL for (int e = 0; e < READS; ++e) GEMMSIM_UNROLL for (int i = 0; i < VECTOR / SHORT; ++i) most =
            larger_pair(most, held[e].v[i]);
        const uint32_t low = most << 16 & 0x7FFF0000u, high = most & 0x7FFF0000u;
        return low > high ? low : high;
    }
    GEMMSIM_HD Word word(int e, int i) const {
        if constexpr (SHORT == 1) return held[e].v[i];
        else return (Word)(held[e].v[i / SHORT] >> i % SHORT * 8 * (int)sizeof(Word));
    }
    GEMMSIM_HD Value value(Word w, int e) const {
        if constexpr (DTYPE != CODES) return load_value<DTYPE, Value>(w);
        else return decode<CODE, Value>(PAIRS && !PERMUTED ? w >> 4 * ((term + e * term_step) & 1) : w);
    }
    template <int MEASURE> GEMMSIM_HD void put(int e, int i, T& to, Extent& extent) const {
        const Word w = word(e, i);
        // a packed register's own numbers; the payload of a NaN is lost in the end
        if constexpr (PACKED_DTYPE<T> == (int)DTYPE && !(CAST.flags & PRESENT)) to = T::of(w);
        else if constexpr (CAST.flags & PRESENT) put_value<MEASURE>(round_cast<CAST>(value(w, e), 0), to, extent);
        else put_value<MEASURE>(value(w, e), to, extent);
    }
    template <int MEASURE, class V> static GEMMSIM_HD void put_value(V v, T& to, Extent& extent) {
        if constexpr (PACKED_DTYPE<T> >= 0) to = T::from((float)v);
        else if constexpr (SAME<T, int32_t>) to = v - v == 0 ? (int32_t)v : NOT_WHOLE;
        else to = (T)v;
        if constexpr (MEASURE != NOTHING && !(IN_PAIRS && MEASURE == MAGNITUDES)) extent.meet(v);
        if constexpr (MEASURE == EXTENTS) extent.look_into((float)v);
    }
};

}  // namespace gemmsim
