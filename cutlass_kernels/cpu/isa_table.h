// This file is the interface between the driver (one copy, no special instructions) and the kernels (one copy per
// instruction set).
#pragma once
#include "gemmsim/program.h"
#include "kernels.h"
#include "thresholds.h"

namespace gemmsim {

// How one term enters the register.
enum Step : int {
    FMA_NEAR = 0,  // the carrier's own fused multiply-add (proved exact, or arithmetic="fp32"), then the add rounding
    FMA_ODD = 1,   // the exact a*b + c rounded to odd, then the add rounding
    MA_NEAR = 2,   // product, mul rounding, sum, add rounding, by the carrier's own nearest operations
    MA_ODD = 3,    // as MA_NEAR, with both operations rounded to odd
    STEPS = 4
};
constexpr bool to_odd(int step) { return step == FMA_ODD || step == MA_ODD; }

constexpr int64_t MR = 8;  // rows of a packed panel of A

// How floating-point lanes compute an INTEGER or FIXED segment. Each product times `scale` is rounded to a whole
// number, or stays as it is (NONE). Sums are clamped to [low, high] at every step, or stay exact and are folded at the
// end.
struct IntegerLanes {
    enum Round : int32_t { NONE, NEAREST, DOWN, UP, TRUNCATE };
    int32_t round, clamp;
    double scale, low, high;
};

struct Wrapper {
    int32_t order;    // Order
    int32_t pairs;    // INTERLEAVED: lanes are combined pairwise instead of in sequence; SCHEDULED: it rounds a compensated sum
    int64_t n;        // length of a chunk or base case, or number of lanes or slices
    Cast cast;        // rounding of each combination (SPLITK: of each partial sum too)
};

// One tile: MR rows by two vectors of columns. A kernel adds its terms in order of k.
struct Tile {
    const void* a;       // k x MR, carrier
    const void* b;       // k x NR, carrier
    void* c;             // MR x NR, carrier: initial value in, result out
    int64_t k;           // terms of this segment; a and b point at the first one
    // Rows (<= MR) and columns in use. Vector kernels compute all columns; the rest is padding.
    int rows, cols;
    const Cast* mul;
    const Cast* add;
    uint64_t seed, row0;  // SR: global index of the tile's first row and column
    uint32_t col0;
    int64_t k0;            // SR: index of the first term
    const int64_t* kmap;   // SR: original indices of the terms if these have been permuted; else null
    bool exact_products;   // each product is a number of the carrier
    int scaled_by;              // exponent of the power of two that A was multiplied by (tiles/rescaled_tile.h); 0: none
    // DIRECTED and DIRECTED_CLAMP in a rounding mode of the processor: sums are nearest sums, whatever the cast's mode is.
    bool nearest_sums = false;
    // MultiTile::TRUNCATE: the lowest bits of each term (Isa::lowest_bits), null where they are not known. A term may
    // lead to a midpoint if its two bytes add up to at least midpoints_from.
    const uint8_t *low_a = nullptr, *low_b = nullptr;
    int midpoints_from = 0;
    // Steps of matrix instructions: exponent fields of the terms, or which terms of a group are not zero
    // (Isa::fields_a, fields_b). Null: the kernel computes them itself.
    const int32_t* field_a = nullptr;
    const int16_t* field_b = nullptr;
    // A tile may be a part of a segment; these flags mark the first and the last part. Between parts c holds the sums,
    // and `rest` the compensations of compensated sums, in c's type and layout.
    bool begins = true, ends = true;
    void* rest = nullptr;
    int64_t index(int64_t at) const { return kmap ? kmap[at] : k0 + at; }  // the index of the term at position `at`
};

// The roundings that a kernel of tiles can do, in order of cost (tiles/rounders.h explains each).
enum class Rounding : int {
    NATIVE = 0,      // the carrier's own operation
    NORMAL = 1,      // to nearest even, without subnormals and overflows
    SUBNORMALS = 2,  // to nearest even, without overflows
    SATURATE = 3,    // to nearest even, overflows become the largest value
    OVERFLOWS = 4,   // to nearest even, overflows become infinite or NaN
    FLUSH = 5,       // to nearest even, formats without subnormals
    ANY_MODE = 6,    // any deterministic mode, any data
    STOCHASTIC = 7,  // by random bits, any data
    DIRECTED = 8,    // one mode other than nearest even for all casts, by directed rounding, without overflows
    DIRECTED_CLAMP = 9,  // the same with overflows
    COUNT = 10
};
constexpr int ROUNDINGS = (int)Rounding::COUNT;

// How partial sums are combined by one instruction set: by a rounding of two carrier values, in the value sets of gemmsim/grid.h (double
// lanes), or one element at a time.
enum class Combine : int { NATIVE, NEAREST, DIRECTED, ANY_MODE, STOCHASTIC, IRREGULAR, SCALAR };

// How short runs are rounded together with their sums (tiles/short_runs/short_runs.h). All but CLAMPED assume that nothing overflows.
// ABSENT: there is no such kernel.
enum class RunsRounding : int { ABSENT = -1, NATIVE, NORMAL, SUBNORMALS, FLUSH, CLAMPED, DIRECTED };
// The rounding of rounders.h that does the same. FLUSH has its clamps there.
constexpr Rounding rounding_of(RunsRounding r) {
    return r == RunsRounding::NATIVE       ? Rounding::NATIVE
           : r == RunsRounding::NORMAL     ? Rounding::NORMAL
           : r == RunsRounding::SUBNORMALS ? Rounding::SUBNORMALS
           : r == RunsRounding::DIRECTED   ? Rounding::DIRECTED
                                           : Rounding::FLUSH;
}

typedef void (*TileFn)(const Tile&);
struct PaletteTile;  // a tile whose elements have different roundings (tiles/other/palette_tile.h)

// Speculation that a compensated sum stays below `most` in magnitude. The kernel checks this after every `steps` steps.
struct Speculation {
    double most = 0;
    int64_t steps = 1;
};
// `rounds`: products are rounded by the tile's mul. False: the speculation failed.
typedef bool (*CompensatedFn)(const Tile&, const Speculation&, bool rounds);

// The roundings of a compensated sum. `wide`: all operations of float panels are in double lanes.
struct CompensatedRounding {
    Rounding kind;
    bool wide = false;
};

// Lengths of `count` segments of k terms. Chunks and base cases have `size` terms, and the last one may be shorter.
// Lengths of interleaved sums (`lanes`) differ by at most one.
struct Lengths {
    int64_t k, count, size;
    bool lanes;
    int64_t operator[](int64_t i) const {
        return lanes ? k / count + (i < k % count ? 1 : 0) : i < count - 1 ? size : k - size * (count - 1);
    }
    // The first segment after i that may have another length.
    int64_t same_until(int64_t i) const { return lanes ? (i < k % count ? k % count : count) : i < count - 1 ? count - 1 : count; }
};

// Exponents of the powers of two that panels of A and B are multiplied by. After that the register's 2^emin is the
// least normal float, and no element of the panels is smaller than it (tiles/nearest/multi_tile.h).
struct Rescaling {
    bool fits = false;
    int a = 0, b = 0;
};

// Several float tiles in one call: `tiles` tiles below each other, whose panels of A are consecutive in memory, times
// `panels` panels of B.
struct MultiTile {
    // SUMS: nearest-even registers whose steps are the carrier's own additions. `kind` is NATIVE, NORMAL or, with rescaled
    // panels, SUBNORMALS; c is one matrix, row by row (tiles/nearest/multi_tile.h).
    // TRUNCATE: sums rounded by an addition to their bits and a mask, for one panel of B. c holds one tile after
    // another (tiles/nearest/rescaled.h).
    // FP16: binary16 registers and operands, with panels of A packed for them; c is one matrix
    // (tiles/nearest/binary16.h).
    enum Way : int { NO = 0, SUMS = 1, TRUNCATE = 2, FP16 = 3 } way = NO;
    static constexpr int MOST_TILES[] = {0, 3, 16, 16}, MOST_PANELS[] = {0, 2, 1, 2};
    Rounding kind = Rounding::NATIVE;
    int tiles = 0, panels = 0;
    // SUMS: by what both panels have been rescaled. TRUNCATE: A has been rescaled, and the kernel rescales B.
    Rescaling rescaling = {};
    int64_t checks = 0, small = 0;  // TRUNCATE: checks made so far, and how many vectors of them had small sums
};

// One kernel computes segments and combines their sums (tiles/short_runs/short_runs.h).
struct RunsPlan {
    RunsRounding kind = RunsRounding::ABSENT;
    int step = 0;
    enum Shape { ONE, SEQUENCE, PAIRS } shape = ONE;  // ONE: one segment, which starts from the tile's c
    bool eights = false;  // eight short segments at a time stay in CPU registers
    Speculation speculation = {};
    bool clamps = false;  // where the speculation fails, the same kernel runs again, CLAMPED
    // SEQUENCE: the sums of segments are added to the tile's c, which has been checked to be inside the bounds.
    bool goes_on = false;
};

// Bounds of a part of an operand, from which the planner derives its proofs. Exponents are of values, without a bias.
struct Stats {
    double max_abs;  // largest finite magnitude
    double row_sum;  // upper bound of the sum of magnitudes along a row (A only)
    int32_t lsb;  // lower bound of the exponents of lowest set bits; 32767 if all elements are zero
    int32_t width;  // upper bound of the significant bits of an element
    int32_t non_finite;
};

struct Binary16;  // tiles/nearest/binary16.h

// The functions of one instruction set. A carrier's index is 0 for float and 1 for double.
struct Isa {
    // `name` names the kernels. Callers choose the instruction set by `shown`.
    const char *name, *shown;
    // DIRECTED: steps of all kernels can round in a direction, so that FMA_ODD and MA_ODD take any operands. TILES:
    // those of `tile` can, under a rounding mode of the processor.
    enum Directed : int { NEAREST = 0, DIRECTED = 1, TILES = 2 } directed;
    int nr[2];  // columns of a tile
    // Float tiles of kinds SUBNORMALS, and DIRECTED toward zero, accept rescaled panels (Tile::scaled_by).
    bool rescales;
    // By kernel (tile_place), carrier, step and rounding; null where the kernel does not exist.
    TileFn tile[TILE_KERNELS][2][STEPS][ROUNDINGS];
    // Returns the kernel of a compensated segment (tiles/compensated/compensated.h explains the roundings). `odd`:
    // operations are exact. The kernel returns false if its speculation failed.
    CompensatedFn (*compensated)(int carrier, int method, CompensatedRounding how, bool odd);
    // Segments that start from +0 and whose sums are combined in order or in pairs, all by the tile's `add`. Returns
    // false if the speculation failed. Null on x86 without FMA, where segments and combinations run separately.
    bool (*runs)(int carrier, const Tile& t, const Lengths& lengths, const RunsPlan& plan);
    // Splits n doubles x (n is a multiple of 8): x becomes what adding and subtracting `magic` rounds it to, `rest`
    // gets the remainder.
    void (*split)(double* x, double* rest, int64_t n, double magic);
    // INTEGER and FIXED segments. `panel` and `lanes` are 0 for float and 1 for double; the tile's c has the type of
    // the lanes.
    void (*integers)(int panel, int lanes, const Tile& t, int nr, const IntegerLanes& how);
    // A register whose casts have the value sets of gemmsim/grid.h, in double lanes.
    void (*grids)(const Tile& t, bool fused);
    // All elements of a tile whose roundings differ, in one pass (tiles/other/palette_kernel.h). Returns false if the
    // speculation failed.
    bool (*palette)(int carrier, const PaletteTile& t);
    // Steps of a matrix instruction along the tile's k, for finite registers and float panels. `wide`: products are
    // computed in double lanes.
    void (*hardware)(const Tile& t, const HardwareModel& m, int bits, bool wide);
    // s = R(s + t) for n carrier values (whole vectors), by every Combine but STOCHASTIC and SCALAR. `odd`: sums are exact.
    void (*combine)(int carrier, void* s, const void* t, int64_t n, const Cast& c, Combine how, bool odd);
    // The same for a tile with a stochastic cast: its draws are those of stream `site` at step `index`.
    void (*combine_draws)(int carrier, void* s, const void* x, const Tile& t, const Cast& c, uint64_t index, int site, bool odd);
    // Converts src (any dtype, element stride) to the carrier, in order.
    void (*load)(int carrier, const void* src, int dtype, int64_t stride, int64_t n, void* dst);
    // Converts carrier values to dst (any dtype), exactly or to nearest even. NaN becomes the canonical NaN.
    void (*save)(int carrier, const void* src, int64_t n, void* dst, int dtype, int64_t stride);
    // Rounds in place. A stochastic cast draws for elements index0 and following, in stream `site`.
    void (*round)(int carrier, void* x, int64_t n, const Cast& c, uint64_t seed, uint64_t index0, int site);
    void (*stats)(int carrier, const void* x, int64_t n, Stats* s);
    // Rounds fp32 or fp64 to the same type: contiguous, deterministic, in one pass. `stream` bypasses the cache.
    // Returns 0 if it does not support the cast.
    int (*quantize)(int carrier, const void* src, void* dst, int64_t n, const Cast& c, int stream);
    // Several tiles with all rows in use, from +0. Returns false if the data make other kernels faster; c is then no
    // result. Null: this instruction set has no such kernel.
    bool (*multi_tile)(const Tile& t, MultiTile& how);
    // `multi_tile` does SUMS; TRUNCATE to nearest even does not need the midpoint filter.
    bool multi_tile_sums, multi_tile_checks;
    // For each of k terms of a panel with `term` numbers (MR or nr): the largest exponent of a lowest set bit, biased
    // by 127. 0: that exponent is at most -127, or all numbers are zero. Null: no kernel of this instruction set uses
    // it.
    void (*lowest_bits)(const float* panel, int64_t k, int term, uint8_t* out);
    // For each number of k terms of a float panel, the exponent field that aligns it in a step of a matrix instruction
    // (tiles/matrix_unit/exponents.h). The model's a_emin and b_emin bound it from below. Fields of A are repeated in
    // both halves of 32 bits. Fields of B are in the lane order of the processor's packing instruction, term by term.
    // For HW_GROUPS these are masks of elements that are not zero.
    void (*fields_a)(const float* panel, int64_t k, const HardwareModel& m, int32_t* out);
    void (*fields_b)(const float* panel, int64_t k, const HardwareModel& m, int16_t* out);
    const Binary16* fp16;  // null: no FP16 kernels
    // save() for several contiguous rows of the carrier's own type.
    void (*save_rows)(int carrier, const void* src, int64_t pitch, int rows, int64_t n, void* dst, int64_t row);
    // Multiplies x by a power of two.
    void (*times)(const float* x, float* to, int64_t n, float power);
};

const Isa* isa_avx512();
const Isa* isa_avx512fp16();  // the same with FP16 kernels; null: this processor has none
const Isa* isa_avx2();
const Isa* isa_neon();
const Isa* isa_base();

}  // namespace gemmsim
