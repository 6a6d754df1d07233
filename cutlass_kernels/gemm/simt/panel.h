// The panels of one operand. A panel is a chunk of terms, read from global memory, cast, widened to the carrier and measured. In
// shared memory the lines of a term are contiguous. k_loop.h uses this file for operands that async_panel.h does not copy.
#pragma once
#include "gemm/simt/table_products.h"
#include "gemmsim/device/block.h"
#include "gemmsim/device/packed.h"

namespace gemmsim {

// Makes the compiler store a number that it would otherwise compute anew in each chunk.
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

// Returns an upper bound of |x| as the pattern of a float. It is the pattern of infinity or NaN if x is not finite.
GEMMSIM_HD uint32_t magnitude_up(float x) { return to_bits(x) & 0x7FFFFFFFu; }
GEMMSIM_HD uint32_t magnitude_up(double x) { return (to_bits((float)x) & 0x7FFFFFFFu) + 1; }

// Returns the larger of a pattern without sign and the pattern of |x|. NaN counts as the largest number and becomes some NaN pattern.
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

// Does the same by magnitude for each of two bfloat16 numbers in a word. The signs of the result are undefined.
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

// The measurements of an operand's numbers in a chunk, or in a thread's part of it.
struct Extent {
    uint32_t most = 0;             // largest magnitude, as magnitude_up returns it
    uint32_t bits = 0;             // union of the bits of all patterns
    uint32_t least = 0xFFFFFFFFu;  // 2 * pattern - 1 for the pattern of the smallest magnitude; zeros do not count

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
    // Adds a number to the measurements of significands and of the smallest magnitude.
    GEMMSIM_HD void look_into(float x) {
        const uint32_t u = to_bits(x), low = u + u - 1;
        bits |= u;
        least = low < least ? low : least;
    }
    // The number of significand bits that suffices for all numbers.
    GEMMSIM_HD int width() const { return 24 - trailing_zeros(bits | 0x800000u); }
    // All numbers are multiples of two to this power.
    GEMMSIM_HD int quantum() const {
        const int field = (int)((least + 1) >> 24);
        return least == 0xFFFFFFFFu ? 1000 : (field > 1 ? field : 1) - 127 - (width() - 1);
    }
};

// What a run needs to have measured of each chunk: nothing, the largest magnitudes, or everything (only for float panels).
enum Measure : int { NOTHING = 0, MAGNITUDES = 1, EXTENTS = 2 };

// The shape of a thread's elements where an operand is contiguous along the terms: some terms of some neighbouring lines. A read covers
// a line's terms, and a write covers lines of one term. patch_of() chooses the shape of `each` elements with the fewest instructions.
// A read counts as three, with its address.
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

// The panel of one operand: DEPTH terms of N lines each, loaded by THREADS threads. A "line" is a row of A or a column of B.
template <class T, DType DTYPE, CodeFormat CODE, Cast CAST, int N, int DEPTH, int THREADS, int LAYOUT, bool PERMUTED> struct Panel {
    typedef typename Storage<DTYPE>::Word Word;
    typedef typename Storage<DTYPE == F64 || CODE.wide ? F64 : F32>::Word Value;
    // Whether a byte has two codes along the terms. A thread reads the byte once for each of them.
    static constexpr int PAIRS = CODE.packed;
    static_assert(!PAIRS || (LAYOUT == ANY_STRIDES && DEPTH % 2 == 0));
    static_assert(N * DEPTH % THREADS == 0);
    // EACH is the number of elements of a thread. PITCH is that of a row in shared memory, which starts at a multiple of 16 bytes.
    static constexpr int EACH = N * DEPTH / THREADS, WIDEST = 16 / sizeof(T), PITCH = N + (WIDEST > 4 ? WIDEST : 4);
    static constexpr int SIZE = DEPTH * PITCH;
    // VECTOR neighbours are read at once, and a thread does READS such reads.
    static constexpr int WIDE = 16 / sizeof(Word);
    static constexpr Patch PATCH = patch_of(EACH, WIDE, WIDEST, DEPTH);
    static constexpr int VECTOR = LAYOUT == TERMS_CONTIGUOUS ? PATCH.terms : LAYOUT == ANY_STRIDES ? 1 : WIDE < EACH ? WIDE : EACH;
    static constexpr int READS = EACH / VECTOR;
    // PIECE neighbouring lines are written at once.
    static constexpr int ROW = LAYOUT == TERMS_CONTIGUOUS ? READS : LAYOUT == ANY_STRIDES ? 1 : VECTOR, PIECE = ROW < WIDEST ? ROW : WIDEST;
    // SHORT elements are read as one word of 32 bits where elements are shorter. `word` separates them where they are used.
    static constexpr int SHORT = sizeof(Word) < 4 && VECTOR * sizeof(Word) >= 4 ? 4 / sizeof(Word) : 1;
    typedef typename Choice<uint32_t, Word, (SHORT > 1)>::type Raw;
    struct alignas(VECTOR * sizeof(Word)) Words {
        Raw v[VECTOR / SHORT];
    };
    struct alignas(PIECE * sizeof(T)) Piece {
        T v[PIECE];
    };

    // Whether asynchronous copies from global to shared memory can replace the reads.
    static constexpr bool COPIES = !PERMUTED && sizeof(Words) >= 4;
    static constexpr int DEPTH_OF = DEPTH;

    const Word *base, *origin;
    int64_t step, chunk;  // strides between a thread's reads of a chunk, and from a chunk to the next
    int64_t term_stride, line_step;
    uint32_t inside;      // a bit for each of a thread's reads: whether its line is in the matrix
    int term, term_step, place, place_step;
    Words held[READS];

    // Sets the positions of a thread's elements. They lie along the direction in which the tensor is contiguous, or has the smaller
    // stride.
    GEMMSIM_HD void start(const void* data, int64_t offset, int64_t line0, int64_t lines, int64_t line_stride, int64_t stride, int tid) {
        const int64_t s = stride < 0 ? -stride : stride, l = line_stride < 0 ? -line_stride : line_stride;
        const bool along_terms = LAYOUT == ANY_STRIDES ? s <= l : LAYOUT == TERMS_CONTIGUOUS;
        // `across` neighbouring threads take neighbours in memory and cover one line, or one term.
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

    // Skips the next chunks. With PERMUTED, `fetch` computes all addresses and nothing needs to be skipped.
    GEMMSIM_HD void skip(int chunks) {
        if constexpr (!PERMUTED) base += chunks * chunk;
    }

    // Reads the next DEPTH terms into registers. They start at position `first` of the order of terms, which has `left` more terms from
    // there on. Elements beyond the matrix are zeros.
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
            if constexpr (PAIRS) {  // the step between terms may be odd
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

    // Converts the elements in registers, stores them in shared memory, and returns their measurements.
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
    // Whether the largest magnitude is measured on the words as they are read, two elements at once.
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
        // These are numbers of the packed register's format. A result has no NaN payload, so the payload does not matter.
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
