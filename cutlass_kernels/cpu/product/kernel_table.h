// One ordered list of rules chooses the kernel of every product: the first rule that is possible and pays.
// The kernel_choice*.h files compute what rules ask about: proofs, bounds, steps and roundings (Choice). The list in kernel_table.cpp is
// the only place that chooses a kernel, and the names there are what gemmsim.last_backend() prints.
// docs/design/cpu_kernels.md has the table, generated from this list.
#pragma once
#include "kernels.h"
#include "product/kernel_choice.h"

namespace gemmsim {

// What is known of the tiles for which a kernel is chosen.
struct Block {
    bool counts_events = false;     // the product counts the events of its additions
    bool from_table = false;        // terms come from a table, by the codes of the operands
    bool counts_overflows = false;  // an INTEGER or FIXED register counts how often it left its range
    bool has_panels = false;        // panels of all terms of several tiles are in memory, and may be multiplied by powers of two
    bool several_tiles = false;     // most rows are in use, and kernels of several tiles have not failed in this product
    bool may_scale = false;         // the panels of A may be multiplied by a power of two
    int lanes = 0;                  // of the panels: 0 float, 1 double
    bool permuted = false;          // terms are in another order than their indices
    bool few_small = false;         // few sums are below 2^emin, by estimate (small_vectors)
    const Scales* scales = nullptr;
    // How many terms may lead to midpoints, by their lowest bits. UNKNOWN: the bits have not been compared yet.
    enum Midpoints : uint8_t { UNKNOWN, FEW, MANY } midpoints = UNKNOWN;
};

struct Problem {
    const Isa& isa;
    const Request& r;
    const Choice& c;
    const Block& block;
};

struct KernelRule {
    Kernel kernel;
    const char* name;  // as users see it
    const char* file;  // of the kernel, below cutlass_kernels/cpu
    // What reports add to the name: nothing, the lanes, or lanes, step and rounding.
    const char* details;
    // Whether the kernel computes the right bits, and whether it is the fastest of those that do and come later. Null: always.
    bool (*possible)(const Problem&);
    bool (*pays)(const Problem&);
    // The rule from which the list goes on where the kernel's speculation fails; the kernel itself where it cannot fail.
    Kernel fallback;
    const char *possible_in_words, *pays_in_words;
};

// The rules, in order; rule i is that of kernel i.
extern const KernelRule KERNEL_RULES[KERNELS];
inline const KernelRule& rule_of(Kernel k) { return KERNEL_RULES[(int)k]; }

// The first kernel from `from` on whose rule holds.
Kernel choose_kernel(const Problem& p, Kernel from = Kernel::COUNTING);

// The tile kernel's function for this choice; null if the instruction set has none.
inline TileFn tile_function(const Isa& isa, Kernel k, const Choice& c) { return isa.tile[tile_place(k)][c.carrier][c.step][(int)c.kind]; }

// The power of two by which panels of A are multiplied for tile kernels; 0 if they are not scaled.
inline int scaling(const Problem& p) {
    const bool plain = p.r.method == REGISTER && p.c.runs.kind == RunsRounding::ABSENT;
    return p.block.may_scale && p.isa.rescales && !p.block.counts_events && plain ? p.c.scaled_by : 0;
}

// How panels are rescaled for kernels of several tiles. Registers that need no subnormals take panels as they are.
inline Rescaling rescaling_of_panels(const Choice& c) { return c.kind <= Rounding::NORMAL ? Rescaling{true, 0, 0} : c.rescaling; }

}  // namespace gemmsim
