// The loop over K of a block: it brings the terms of the block's outputs to shared memory in chunks. Both operands are cast and widened
// to the carrier there. The next chunk is read from global memory while the current one is used. Two buffers make one barrier a chunk
// sufficient.
#pragma once
#include "gemm/simt/async_panel.h"
#include "gemm/simt/pipelined_panel.h"
#include "gemmsim/philox.h"

namespace gemmsim {

// The cast that the load of an operand applies.
GEMMSIM_HD constexpr Cast cast_on_load(const Cast& c, int32_t done) { return done ? Cast{} : c; }

template <class T, DType DTYPE, CodeFormat CODE, Cast CAST, int N, int DEPTH, int THREADS, bool PERMUTED> struct GatheredPanel;

template <GemmConfig K> struct Stream : Products<K> {
    typedef
        typename Steps<K>::template Pick<typename Steps<K>::T, int32_t, SmallIntegers<K>::POSSIBLE || K.table.columns != 0>::type Number;
    // The types of the panels' elements. A packed run takes each number of A in both halves of a word.
    typedef typename Steps<K>::template Pick<Number, Twice<PackedFormat<K>::DTYPE>, K.packed != 0>::type TA;
    typedef typename Steps<K>::template Pick<Number, Packed<PackedFormat<K>::DTYPE>, K.packed != 0>::type TB;
    static constexpr int DEPTH = K.depth, M = K.down * K.rows, N = K.across * K.cols, COMPUTE = K.down * K.across;
    // The number of threads that load: all of the block, or only those that do nothing else.
    static constexpr int THREADS = K.loaders ? K.loaders : COMPUTE, WARPS = THREADS / 32, STAGES = K.stages;
    typedef Panel<TA, K.a, K.code_a, cast_on_load(K.cast_a, K.done_a), M, DEPTH, THREADS, K.layout_a, K.permuted != 0> StridedA;
    typedef GatheredPanel<TA, K.a, K.code_a, cast_on_load(K.cast_a, K.done_a), M, DEPTH, THREADS, K.permuted != 0> GatheredA;
    typedef Staged<typename Steps<K>::template Pick<StridedA, GatheredA, K.gathered != 0>::type, THREADS, 0> StagedA;
    typedef typename Steps<K>::template Pick<StagedA, CopiedPanel<M, DEPTH, THREADS, K.layout_a>, K.copied != 0>::type PanelA;
    typedef Panel<TB, K.b, K.code_b, cast_on_load(K.cast_b, K.done_b), N, DEPTH, THREADS, K.layout_b, K.permuted != 0> StridedB;
    typedef Staged<StridedB, THREADS, STAGES> StagedB;
    typedef typename Steps<K>::template Pick<StagedB, CopiedPanel<N, DEPTH, THREADS, K.layout_b>, K.copied != 0>::type PanelB;

    struct Buffer {
        alignas(16) TA a[PanelA::SIZE];
        alignas(16) TB b[PanelB::SIZE];
        struct alignas(16) Words {
            uint32_t most[WARPS], bits[WARPS], least[WARPS];
        } measured_a, measured_b;
    };
    // Shared memory has the two buffers, then a table of products, then UNUSED bytes, then the stages of B (pipelined_panel.h). A run
    // reads the factors of AHEAD terms behind the last one of a chunk but does not use them. Those of A may reach beyond the panel of B.
    static constexpr unsigned AHEAD = K.copied ? 0 : gemm_ahead(K), BEHIND_A = sizeof(Buffer) - PanelA::SIZE * sizeof(TA),
                              READ_A = AHEAD * PanelA::PITCH * sizeof(TA), READ_B = AHEAD * PanelB::PITCH * sizeof(TB),
                              UNUSED = READ_A > BEHIND_A + READ_B ? READ_A - BEHIND_A : READ_B,
                              BEFORE = (2 * sizeof(Buffer) + Products<K>::TABLE_BYTES + UNUSED + 15) / 16 * 16,
                              BYTES = BEFORE + PanelB::BYTES;
    static GEMMSIM_HD uint8_t* table() { return shared_memory() + 2 * sizeof(Buffer); }

    PanelA a;
    PanelB b;
    const int32_t* order;
    uint32_t used;  // offset in bytes of the buffer in use
    int base, k;    // first term of the buffer in use; end of the terms, less than 2^31
    int tid;

    GEMMSIM_HD Buffer* buffer() const { return (Buffer*)(shared_memory() + used); }

    // Whether this thread computes, and whether it loads. With `loaders`, the first threads of a block compute and the others load.
    GEMMSIM_HD bool computes() const { return !K.loaders || tid < COMPUTE; }
    GEMMSIM_HD bool loads() const { return !K.loaders || tid >= COMPUTE; }
    // The thread's number among those that load.
    static GEMMSIM_HD int loader(int tid) { return K.loaders ? tid - COMPUTE : tid; }

    // Loads the chunk of term `first` and starts to load the next one. The threads of the block must have passed a barrier since any
    // of them last read the buffers.
    template <int MEASURE> GEMMSIM_HD void start(int first = 0) {
        used = sizeof(Buffer);
        base = first / DEPTH * DEPTH - DEPTH;
        if (k == 0) return;
        if (loads()) {
            if constexpr (K.split != 0) a.skip(first / DEPTH), b.skip(first / DEPTH);
            if constexpr (K.copied) copy(*(Buffer*)shared_memory(), k - base - DEPTH);
            else
                a.begin(nullptr, loader(tid), base + DEPTH, k, order),
                    b.begin(shared_memory() + BEFORE, loader(tid), base + DEPTH, k, order);
        }
        advance<MEASURE>();
    }

    // Makes the next chunk the one in use, and starts to load the chunk after it. Threads that load store the next chunk while other
    // threads still use the previous one.
    template <int MEASURE> GEMMSIM_HD void advance() {
        used = sizeof(Buffer) - used;
        Buffer* const next = buffer();
        if constexpr (K.copied) {
            wait_async<0>();
            note<MEASURE>(next->measured_a, a.template measure<MEASURE>(next->a));
            note<MEASURE>(next->measured_b, b.template measure<MEASURE>(next->b));
        } else if (loads()) {
            b.take();
            note<MEASURE>(next->measured_a, a.template store<MEASURE>(next->a));
            note<MEASURE>(next->measured_b, b.template store<MEASURE>(next->b));
        }
        block_sync();
        base += DEPTH;
        if (loads()) {
            const int left = k - base - DEPTH;
            if constexpr (K.copied) {
                if (left > 0) copy(*(Buffer*)(shared_memory() + (sizeof(Buffer) - used)), left);
            } else if (STAGES || left > 0) {
                a.refill(base + DEPTH, left, order);
                b.refill(base + DEPTH, left, order);
            }
        }
    }

    // Starts the asynchronous copy of the next chunk to a buffer that no thread reads.
    GEMMSIM_HD void copy(Buffer& to, int left) {
        if (a.whole() && b.whole() && left >= DEPTH) {
            a.template copy<true>(to.a, left);
            b.template copy<true>(to.b, left);
        } else {
            a.template copy<false>(to.a, left);
            b.template copy<false>(to.b, left);
        }
        a.pass(), b.pass();
        commit_async();
    }

    // Reduces a thread's measurements over its warp and writes them to the warp's words.
    template <int MEASURE> GEMMSIM_HD void note(typename Buffer::Words& words, const Extent& mine) const {
        if constexpr (MEASURE != NOTHING) warp_reduce<Reduce::MOST>(words.most, loader(tid), mine.most);
        if constexpr (MEASURE == EXTENTS) {
            warp_reduce<Reduce::BITS>(words.bits, loader(tid), mine.bits);
            warp_reduce<Reduce::LEAST>(words.least, loader(tid), mine.least);
        }
    }
    // Reads the word of each warp, four words at once where their number is a multiple of four.
    static GEMMSIM_HD void words_of(const uint32_t* from, uint32_t (&to)[WARPS]) {
        constexpr int WIDE = WARPS % 4 == 0 ? 4 : 1;
        struct alignas(4 * WIDE) Vector {
            uint32_t v[WIDE];
        };
        GEMMSIM_UNROLL for (int w = 0; w < WARPS; w += WIDE) {
            const Vector x = *(const Vector*)(from + w);
            GEMMSIM_UNROLL for (int i = 0; i < WIDE; ++i) to[w + i] = x.v[i];
        }
    }
    // Combines the measurements of all warps.
    template <int MEASURE> static GEMMSIM_HD Extent extent(const typename Buffer::Words& words) {
        Extent all;
        uint32_t most[WARPS], bits[WARPS] = {}, least[WARPS];
        words_of(words.most, most);
        if constexpr (MEASURE == EXTENTS) words_of(words.bits, bits), words_of(words.least, least);
        GEMMSIM_UNROLL for (int w = 0; w < WARPS; ++w) {
            if constexpr (MEASURE == EXTENTS) all.join(Extent{most[w], bits[w], least[w]});
            else all.most = most[w] > all.most ? most[w] : all.most;
        }
        return all;
    }

    // Makes the chunk of term `at` the one in use. Callers request terms in ascending order.
    template <int MEASURE> GEMMSIM_HD void reach(int64_t at) {
        if ((int)at - base >= DEPTH) advance<MEASURE>();
    }

    // Returns an upper bound of the product of any two magnitudes. It is infinity or NaN if a magnitude is not finite.
    static GEMMSIM_HD float largest_product(const Extent& x, const Extent& y) {
        const float p = mul_rn(from_bits<float>(x.most), from_bits<float>(y.most));
        return add_rn(mul_rn(p, 1.000001f), 0x1p-126f);
    }
};

// Says which lines one of SIDE threads computes. They are groups of up to four neighbours, so that a thread reads 16 bytes at once.
// With SINGLE they are every SIDE-th line, so that neighbouring threads read neighbouring lines.
template <int COUNT, int SIDE, bool SINGLE = false> struct Lines {
    static constexpr int GROUP = SINGLE ? 1 : COUNT < 4 ? COUNT : 4;
    static GEMMSIM_HD constexpr int line(int side, int i) { return (i / GROUP) * GROUP * SIDE + side * GROUP + i % GROUP; }

    template <class T> static GEMMSIM_HD void read(const T* panel, int side, T (&x)[COUNT]) {
        struct alignas(GROUP * sizeof(T) < 16 ? GROUP * sizeof(T) : 16) Vector {
            T v[GROUP];
        };
        GEMMSIM_UNROLL for (int g = 0; g < COUNT / GROUP; ++g) {
            const Vector v = *(const Vector*)(panel + g * GROUP * SIDE + side * GROUP);
            GEMMSIM_UNROLL for (int i = 0; i < GROUP; ++i) x[g * GROUP + i] = v.v[i];
        }
    }
};

template <GemmConfig K> struct Rows : Lines<K.rows, K.down, K.copied && K.layout_a == TERMS_CONTIGUOUS> {};
template <GemmConfig K> struct Columns : Lines<K.cols, K.across, K.copied && K.layout_b == TERMS_CONTIGUOUS> {};

// The addresses in shared memory (shared_at) of a thread's factors of a term. The factors of the next terms follow.
template <GemmConfig K> struct Cursor {
    typedef Stream<K> S;
    typedef Lines<K.rows, K.down> Rows;
    typedef Lines<K.cols, K.across> Cols;
    static constexpr uint32_t STEP_A = S::PanelA::PITCH * sizeof(typename S::TA), STEP_B = S::PanelB::PITCH * sizeof(typename S::TB);
    uint32_t a, b;

    GEMMSIM_HD Cursor(const S& stream, int ty, int tx, int term) {
        const uint32_t panels = (uint32_t)((const uint8_t*)stream.buffer()->b - (const uint8_t*)stream.buffer()->a);
        const uint32_t chunk = shared_base() + stream.used;
        a = chunk + ty * Rows::GROUP * (uint32_t)sizeof(typename S::TA) + term * STEP_A;
        b = chunk + panels + tx * Cols::GROUP * (uint32_t)sizeof(typename S::TB) + term * STEP_B;
        keep(a), keep(b);
    }
    GEMMSIM_HD void pass(int terms) { a += terms * STEP_A, b += terms * STEP_B; }
    GEMMSIM_HD void load(int ahead, typename S::TA (&x)[K.rows]) const {
        Rows::read((const typename S::TA*)shared_at(a) + ahead * S::PanelA::PITCH, 0, x);
    }
    GEMMSIM_HD void load(int ahead, typename S::TA (&x)[K.rows], typename S::TB (&y)[K.cols]) const {
        load(ahead, x);
        Cols::read((const typename S::TB*)shared_at(b) + ahead * S::PanelB::PITCH, 0, y);
    }
    // Loads the factors of B in words of two neighbouring columns, 16 bits each.
    template <int PAIRS> GEMMSIM_HD void load_pairs(int ahead, uint32_t (&y)[PAIRS]) const {
        static_assert(2 * PAIRS == K.cols);
        struct alignas(Cols::GROUP * 2) Vector {
            uint32_t v[Cols::GROUP / 2];
        };
        GEMMSIM_UNROLL for (int g = 0; g < K.cols / Cols::GROUP; ++g) {
            const Vector v = *(const Vector*)(shared_at(b) + ahead * STEP_B + g * Cols::GROUP * 2 * K.across);
            GEMMSIM_UNROLL for (int i = 0; i < Cols::GROUP / 2; ++i) y[g * Cols::GROUP / 2 + i] = v.v[i];
        }
    }
};

// The positions of a thread's outputs in the whole product, and their random bits.
template <GemmConfig K> struct Place {
    int64_t row0, col0;  // first row and column of the block; rows of all batches are numbered together
    int64_t line0;       // first row of the block in its own matrix
    int ty, tx;
    uint64_t seed;
    const int32_t* key;

    GEMMSIM_HD uint64_t row(int i) const { return (uint64_t)(row0 + Rows<K>::line(ty, i)); }
    GEMMSIM_HD int64_t line(int i) const { return line0 + Rows<K>::line(ty, i); }
    GEMMSIM_HD uint32_t col(int j) const { return (uint32_t)(col0 + Columns<K>::line(tx, j)); }
    GEMMSIM_HD int64_t k_of(int64_t position) const { return K.permuted && key ? key[position] : position; }
    GEMMSIM_HD uint32_t draw(int i, int j, int64_t index, int site, int bits) const {
        return draw_step(seed, row(i), col(j), (uint64_t)index, site, bits);
    }
};

// A partial sum or a result for each output of a thread.
template <GemmConfig K> struct Totals {
    typename Steps<K>::T v[K.rows][K.cols];
};

}  // namespace gemmsim
