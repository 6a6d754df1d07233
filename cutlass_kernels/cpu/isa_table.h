// The interface between the driver (one copy, no special instructions) and the kernels (one copy per ISA).
#pragma once
#include "gemmsim/program.h"

namespace gemmsim {

// How one term enters the register.
enum Step : int {
    FMA_NEAR = 0,  // carrier's own fused multiply-add (proved exact, or arithmetic="fp32"), then the add rounding
    FMA_ODD = 1,   // the exact a*b + c rounded to odd, then the add rounding
    MA_NEAR = 2,   // product, mul rounding, sum, add rounding; carrier's own nearest operations
    MA_ODD = 3,    // the same with both operations rounded to odd
    STEPS = 4
};

// Of a matrix unit's 64 products and the register, each cut so many bits below the largest: what holds the sum of a step: a
// double, two of them, 128 bits.
constexpr int KEPT_IN_DOUBLE = 44, KEPT_IN_TWO = 90, KEPT_IN_INTEGER = 117;

constexpr int64_t MR = 8;  // rows of a packed panel of A

// Of so many terms one may lead to midpoints where tiles know which (tiles/nearest/midpoint_filter.h).
constexpr int64_t RARE_MIDPOINTS = 8;

// Floats are rounded to formats of at most so many bits in two instructions (tiles/nearest/checks.h).
constexpr int SHORT_BITS = 11;

// How an INTEGER or FIXED run goes in floating-point lanes: each product times `scale` to a whole number (or as it is),
// sums clamped to [low, high] at every step or left exact, to be brought into range at the end.
struct IntegerLanes {
    enum Round : int32_t { NONE, NEAREST, DOWN, UP, TRUNCATE };
    int32_t round, clamp;
    double scale, low, high;
};

struct Wrapper {
    int32_t order;    // Order
    int32_t pairs;    // INTERLEAVED: lanes are combined pairwise instead of in sequence
    int64_t n;        // chunk, leaf, lanes or slices
    Cast cast;        // rounding of each combination (SPLITK: of each total, too)
};

// One tile: MR rows by (two vectors of) columns, all of K in order.
struct Tile {
    const void* a;       // K x MR, carrier
    const void* b;       // K x NR, carrier
    void* c;             // MR x NR, carrier: initial value in, result out
    int64_t k;           // terms of this run; a and b point at the first
    int rows, cols;      // rows (<= MR) and columns in use; vector kernels compute all columns, the rest is padding
    const Cast* mul;
    const Cast* add;
    uint64_t seed, row0;  // SR: global index of the tile's first row and column
    uint32_t col0;
    int64_t k0;            // SR: index of the first term
    const int64_t* kmap;   // SR: where terms have been permuted, their original indices; else null
    bool exact_products;   // each is a number of the carrier
    int scaled_by;              // the power of two by which A has been multiplied (tiles/nearest/rescaled_tile.h); 0: none
    bool nearest_sums = false;  // FAST and FAST_CLAMP by modes: sums are nearest ones, whatever the cast's mode is
    // MultiTile::TRUNCATE: the lowest bits of each term (Isa::lowest_bits), null where not known; a term whose bytes add up to so much may lead
    // to midpoints.
    const uint8_t *low_a = nullptr, *low_b = nullptr;
    int midpoints_from = 0;
    // Steps of matrix instructions: exponent fields of the terms, or which of a group are not zero (Isa::fields_a, fields_b); null where
    // kernels are to look themselves.
    const int32_t* field_a = nullptr;
    const int16_t* field_b = nullptr;
    // A part of a run: whether it is the first and the last one. Between them the sums are in c, and in `rest`, of c's type and layout, what
    // compensated sums have beside them.
    bool begins = true, ends = true;
    void* rest = nullptr;
    int64_t index(int64_t at) const { return kmap ? kmap[at] : k0 + at; }  // of the term there
};

// Kinds of rounding a kernel can do, in order of cost (rounders.h explains each).
// FAST, FAST_CLAMP: one non-nearest mode for all casts, by directed rounding instructions.
// LANES: another vector kernel (registers of integers, chips' instructions, the value sets of grid.h).
enum Kind : int {
    NONE = 0,
    PLAIN = 1,
    SUB = 2,
    SAT = 3,
    SPECIAL = 4,
    FTZ = 5,
    GENERAL = 6,
    RANDOM = 7,
    FAST = 8,
    FAST_CLAMP = 9,
    KINDS = 10,
    SCALAR = 10,
    LANES = 11,
    ALL_KINDS = 12
};

typedef void (*TileFn)(const Tile&);
struct PaletteTile;  // a tile whose elements have roundings of their own (palette_tile.h)

// That a compensated sum stays below `most` in magnitude, looked at after every `steps` steps.
struct Speculation {
    double most = 0;
    int64_t steps = 1;
};
typedef bool (*CompensatedFn)(const Tile&, const Speculation&, bool rounds);  // rounds: products, by the tile's mul

// How many terms each run has: `size` (chunks, leaves; the last may be shorter), or all within one of another (lanes).
struct Lengths {
    int64_t k, count, size;
    bool lanes;
    int64_t operator[](int64_t i) const {
        return lanes ? k / count + (i < k % count ? 1 : 0) : i < count - 1 ? size : k - size * (count - 1);
    }
    // the first run after i that may have another length
    int64_t same_until(int64_t i) const { return lanes ? (i < k % count ? k % count : count) : i < count - 1 ? count - 1 : count; }
};

// The powers of two by which panels of A and B are multiplied so that a register's 2^emin becomes the least normal float and no
// element of theirs a smaller one (tiles/nearest/multi_tile.h).
struct Rescaling {
    bool fits = false;
    int a = 0, b = 0;
};

// Tiles of floats below one another, their panels of A one after the other, and beside one another.
struct MultiTile {
    // SUMS: nearest-even registers whose steps are the carrier's own additions, `kind` NONE, PLAIN or, of sunk panels, SUB; c is one
    // matrix, row by row (tiles/nearest/multi_tile.h). TRUNCATE: sums rounded by their bits, of one panel; c is tile after tile (tiles/nearest/rescaled.h).
    // FP16: registers of binary16 from numbers of binary16, panels of A packed so; c is one matrix (tiles/nearest/binary16.h).
    enum Way : int { NO = 0, SUMS = 1, TRUNCATE = 2, FP16 = 3 } way = NO;
    static constexpr int MOST_TILES[] = {0, 3, 16, 16}, MOST_PANELS[] = {0, 2, 1, 2};
    int kind = 0, tiles = 0, panels = 0;
    Rescaling rescaling = {};  // SUMS: by what panels are sunk; TRUNCATE: those of A, and those of B are to be
    int64_t checks = 0, small = 0;  // TRUNCATE: at tiles so far, and how many vectors of these had small sums
};

// Runs and sums of their totals in one kernel (short_runs.h): kind NONE, PLAIN, SUB, FTZ or SPECIAL, -1 where it does not apply.
struct RunsPlan {
    int kind = -1, step = 0;
    enum Shape { ONE, SEQUENCE, PAIRS } shape = ONE;  // ONE goes on from the tile's c
    bool eights = false;  // of short runs, eight of which stay in registers
    Speculation speculation = {};
    bool clamps = false;  // a lost wager is done again by kind SPECIAL
    bool goes_on = false;  // SEQUENCE: totals are added to the tile's c, which was seen to be inside
};

// What a chunk of data is like; the planner's raw material. Exponents are of the value, not biased.
struct Stats {
    double max_abs;  // largest finite magnitude
    double row_sum;  // largest sum of magnitudes along a row (A only)
    int32_t lsb;  // smallest exponent of a lowest set bit; 32767 when all are zero
    int32_t width;  // most significant bits used by any element
    int32_t non_finite;
};

struct Binary16;  // tiles/nearest/binary16.h

// One instruction set's functions. Index of a carrier: 0 float, 1 double.
struct Isa {
    const char *name, *shown;  // of the kernels; by which it is asked for
    // DIRECTED: steps of all kernels round in a direction, so that FMA_ODD and MA_ODD take any operands. TILES: those of `tile`
    // (by the mode of the processor).
    enum Directed : int { NEAREST = 0, DIRECTED = 1, TILES = 2 } directed;
    int nr[2];  // columns of a tile
    bool rescales;  // tiles of floats of kinds SUB, and FAST toward zero, take lifted panels (Tile::lift)
    TileFn tile[2][STEPS][KINDS];  // FAST and FAST_CLAMP are null where nothing is directed
    // kernel of a compensated run; `kind` NONE, SUB, GENERAL or, of float panels by modes, LANES; `odd`: exact operations. False: wager lost
    CompensatedFn (*compensated)(int carrier, int method, int kind, bool odd);
    // runs from +0 whose totals meet in order or in pairs, all by the tile's `add`. False: wager lost. Null where runs and totals
    // have kernels of their own alone (x86 without FMA)
    bool (*runs)(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan);
    // n doubles x (a multiple of 8) in two: to the grid that `magic` rounds to by an addition, and the rest
    void (*split)(double* x, double* rest, int64_t n, double magic);
    // INTEGER and FIXED runs; `panel`, `lanes`: 0 float, 1 double; the tile's c has the type of the lanes
    void (*integers)(int panel, int lanes, const Tile& t, int nr, const IntegerLanes& how);
    // a register whose casts are those of grid.h, on doubles
    void (*grids)(const Tile& t, bool fused);
    // all elements of a tile whose roundings differ, in one pass (palette_kernel.h). False: wager lost
    bool (*palette)(int carrier, const PaletteTile& t);
    // steps of a matrix instruction along the tile's k, on finite registers; float panels; `wide`: products in double lanes
    void (*hardware)(const Tile& t, const HardwareModel& m, int bits, bool wide);
    // s = R(s + t) on n carrier values (whole vectors); `kind` NONE, PLAIN, SUB, GENERAL or, of doubles, LANES; `odd`: exact sums
    void (*combine)(int carrier, void* s, const void* t, int64_t n, const Cast& c, int kind, bool odd);
    // the same of a tile whose cast is stochastic: draws of `site` at place `index`
    void (*combine_draws)(int carrier, void* s, const void* x, const Tile& t, const Cast& c, uint64_t index, int site, bool odd);
    // src (any dtype, element stride) -> carrier, in order
    void (*load)(int carrier, const void* src, int dtype, int64_t stride, int64_t n, void* dst);
    // carrier -> dst (any dtype); exact or nearest even; NaN becomes the canonical one
    void (*save)(int carrier, const void* src, int64_t n, void* dst, int dtype, int64_t stride);
    // in place; mode deterministic, or SR with draws of elements index0.. at `site`
    void (*round)(int carrier, void* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site);
    void (*stats)(int carrier, const void* x, int64_t n, Stats* s);
    // fp32/fp64 to the same type, contiguous, deterministic, one pass; `stream` bypasses the cache. 0: not this cast
    int (*quantize)(int carrier, const void* src, void* dst, int64_t n, const Cast& c, int stream);
    // tiles together, all rows, from +0. False: the data are such that other kernels are faster, and c is not a result. Null: there is none
    bool (*multi_tile)(const Tile& t, MultiTile& how);
    bool multi_tile_sums, multi_tile_checks;  // it does SUMS; TRUNCATE to nearest even, too, of terms that all may lead to midpoints
    // for each of k terms of a panel of `term` numbers, MR or nr: the largest exponent of a lowest set bit, biased by 127; 0: at most
    // 2^-127, or all are zero. Null: nobody asks
    void (*lowest_bits)(const float* panel, int64_t k, int term, uint8_t* out);
    // for each number of k terms of a float panel, the exponent field that decides in a step of a matrix instruction (tiles/matrix_unit/exponents.h),
    // `emin` being its format's: of A, each twice in 32 bits; of B, a term's columns in the processor's order
    void (*fields_a)(const float* panel, int64_t k, const HardwareModel& m, int32_t* out);
    void (*fields_b)(const float* panel, int64_t k, const HardwareModel& m, int16_t* out);
    const Binary16* fp16;  // null: no FP16
    // save() of rows of the carrier's own type, contiguous each
    void (*save_rows)(int carrier, const void* src, int64_t pitch, int rows, int64_t n, void* dst, int64_t row);
    // x times a power of two
    void (*times)(const float* x, float* to, int64_t n, float power);
};

const Isa* isa_avx512();
const Isa* isa_avx512fp16();  // the same and FP16; null: not this processor
const Isa* isa_avx2();
const Isa* isa_neon();
const Isa* isa_base();

}  // namespace gemmsim
