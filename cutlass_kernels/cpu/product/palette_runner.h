// Computes tiles whose elements have accumulators of their own, from a palette. Members that are plain registers share passes over K,
// with constants for each element (palette_kernel.h). Every other member that occurs in a tile runs by itself.
#pragma once
#include "product/k_permutation.h"
#include "tiles/other/palette_tile.h"
#include "product/tile_runner.h"
#include "product/window.h"

namespace gemmsim {

enum : uint8_t { NOT_HERE = 255 };

// The members of a palette that one carrier computes.
struct Members {
    std::vector<Request> requests;
    std::vector<int> carriers;      // carrier of each, as choose_carrier() found it
    uint8_t place[MAX_MEMBERS];     // index here of each member of the whole palette, or NOT_HERE
    std::vector<TermOrder> orders;  // orders of terms; packed panels have the natural order

    Members() { memset(place, NOT_HERE, sizeof place); }
    void add(int member, const Request& r, int carrier) {
        place[member] = (uint8_t)requests.size();
        requests.push_back(r);
        carriers.push_back(carrier);
        orders.push_back(TermOrder(r, r.k, true));
    }
};

inline bool plain_register(const Request& r) { return r.method == REGISTER && r.wrapper_count == 0 && r.hardware.kind == HW_NONE; }

// Divides the members: `narrow` runs in float lanes, `wide` in double lanes. Plain registers stay together where they can.
inline void split_members(const Request* requests, int count, bool directed, Members* narrow, Members* wide) {
    int least = 0;
    for (int m = 0; m < count; ++m)
        if (plain_register(requests[m]) && choose_carrier(requests[m], directed) == 1) least = 1;
    for (int m = 0; m < count; ++m) {
        const Request& r = requests[m];
        int carrier = choose_carrier(r, directed);
        if (carrier == 0 && least == 1 && plain_register(r) && choose_carrier(r, directed, 1) == 1) carrier = 1;
        (carrier == 0 || r.arithmetic == FP32 ? narrow : wide)->add(m, r, carrier);
    }
}

// The palette indices of a batch's elements.
struct Select {
    const uint8_t* data;
    int64_t row, col;  // strides

    // Writes the places of a tile's elements among `members`, and returns the set of members that occur.
    uint32_t load(const Members& members, int64_t row0, int rows, int64_t col0, int cols, int nr, uint8_t* places) const {
        uint32_t present = 0;
        memset(places, NOT_HERE, (size_t)(MR * nr));
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < cols; ++j) {
                const uint8_t at = members.place[data[(row0 + i) * row + (col0 + j) * col]];
                places[i * nr + j] = at;
                if (at != NOT_HERE) present |= 1u << at;
            }
        return present;
    }
};

template <class T> struct PaletteRunner {
    const Isa& isa;
    const Members& members;
    const int carrier, nr;
    std::vector<Runner<T>> runners;
    const TermOrder natural;
    std::vector<T> ordered;  // panels of a member that reads terms in another order
    Report* const report;
    OperandWindow<T>* window = nullptr;  // panels that have some of the terms, instead of the tile's

    PaletteRunner(const Isa& isa_, const Members& m, int nr_, const Stats& a, const Stats& b, Report* used)
        : isa(isa_), members(m), carrier(sizeof(T) == 4 ? 0 : 1), nr(nr_), report(used) {
        runners.reserve(m.requests.size());
        for (size_t i = 0; i < m.requests.size(); ++i) {
            runners.emplace_back(isa, m.requests[i], m.carriers[i], nr, m.orders[i].map(), a, b, EMPTY_STATS,
                                 isa.directed == Isa::DIRECTED ? Isa::DIRECTED : Isa::NEAREST);
            runners.back().choose_kernels();
        }
    }

    static constexpr uint32_t bit(int i) { return 1u << i; }
    static bool single(uint32_t set) { return (set & (set - 1)) == 0; }

    // Computes the elements of `present` members into t.c.
    void run(const Tile& t, const uint8_t* places, uint32_t present) {
        uint32_t left = present;
        for (int fused = 0; fused < 2; ++fused) {
            uint32_t sets[SR + 1];
            share(present, fused, sets);
            for (int mode = 0; mode <= SR; ++mode)
                if (sets[mode]) pass(t, places, sets[mode], present), left &= ~sets[mode];
        }
        for (int i = 0; i < (int)runners.size(); ++i)
            if (left & bit(i)) pass(t, places, bit(i), present);
    }

    // Returns a member's kind in a pass of several. For rounding to odd, such a pass has only the kind for any mode.
    Rounding shared_kind(int i) const {
        const Rounding kind = runners[i].choice.kind;
        return kind >= Rounding::DIRECTED && members.requests[i].add.mode == RO ? Rounding::ANY_MODE : kind;
    }

    // Finds the members that share a pass: those of one mode, by the instructions of that mode. If one member needs the kernel for any
    // mode, all share one pass.
    void share(uint32_t present, int fused, uint32_t* sets) const {
        uint32_t all = 0;
        bool general = false;
        for (int mode = 0; mode <= SR; ++mode) sets[mode] = 0;
        for (int i = 0; i < (int)runners.size(); ++i) {
            const Request& r = members.requests[i];
            const Rounding kind = shared_kind(i);
            if (!(present & bit(i)) || !plain_register(r) || r.fused != fused || r.add.mode >= SR) continue;
            if (runners[i].choice.path != Path::TILES || kind == Rounding::NATIVE || kind == Rounding::STOCHASTIC) continue;
            all |= bit(i);
            sets[kind == Rounding::ANY_MODE ? 0 : r.add.mode] |= bit(i);
            general = general || kind == Rounding::ANY_MODE;
        }
        if (!general) return;
        for (int mode = 0; mode <= SR; ++mode) sets[mode] = 0;
        sets[0] = all;
    }

    // Returns a kind that rounds like each member's own. OVERFLOWS also clamps to the largest value, if overflow means that.
    Rounding kind_of(uint32_t set) const {
        Rounding kind = Rounding::NORMAL;
        bool fast = true;
        for (int i = 0; i < (int)runners.size(); ++i) {
            if (!(set & bit(i))) continue;
            const Rounding k = shared_kind(i);
            fast = fast && k >= Rounding::DIRECTED;
            kind = k > kind ? k : kind;
        }
        return kind > Rounding::ANY_MODE && !fast ? Rounding::ANY_MODE : kind;
    }

    void pass(const Tile& t, const uint8_t* places, uint32_t set, uint32_t present) {
        alignas(64) T part[MR * 64];
        Tile own = t;
        if (set != present) own.c = part;
        if (single(set)) alone(own, set);
        else together(own, places, set);
        if (set == present) return;
        for (int i = 0; i < t.rows * nr; ++i)
            if (places[i] != NOT_HERE && (set & bit(places[i]))) ((T*)t.c)[i] = part[i];
    }

    void together(const Tile& t, const uint8_t* places, uint32_t set) const {
        PaletteTile p = {t, places, set, {}, {}, 0, kind_of(set), 0, {}, 0};
        for (int i = 0; i < (int)runners.size(); ++i) {
            if (!(set & bit(i))) continue;
            p.mul[i] = &members.requests[i].mul;
            p.add[i] = &members.requests[i].add;
            p.mode = p.add[i]->mode;
            if (runners[i].choice.step > p.step) p.step = runners[i].choice.step;  // to odd, if any member needs it
            report->proofs &= runners[i].choice.proofs;
        }
        report->add(Kernel::PALETTE, carrier, p.step, p.kind);
        PaletteTile bet = p;
        bool won = false;
        if ((p.kind == Rounding::SATURATE || p.kind == Rounding::OVERFLOWS) && speculation(set, &bet)) { won = in_parts(bet); }
        if (!won) in_parts(p);
    }
    bool in_parts(PaletteTile p) const {
        const HardwareModel none = {};
        const Tile base = p.t;
        const Terms<T> terms = {base, nr, nullptr, none, window};
        memset(base.c, 0, sizeof(T) * (size_t)(MR * nr));
        if (window) window->reorder(natural);
        return Parts<T>{terms, 0, base.k, (T*)base.c}.while_true([&](const Tile& t) {
            p.t = t;
            return isa.palette(carrier, p);
        });
    }

    // Prepares the kernel without clamps for members that could overflow, on the assumption that none does (short_runs.h does so for one
    // member). False: some member has no such kernel.
    bool speculation(uint32_t set, PaletteTile* p) const {
        p->kind = Rounding::SUBNORMALS;
        p->steps = INT64_MAX;
        for (int i = 0; i < (int)runners.size(); ++i) {
            if (!(set & bit(i))) continue;
            const Choice& c = runners[i].choice;
            p->most[i] = INFINITY;
            if (c.kind <= Rounding::SUBNORMALS) continue;
            if (c.runs.kind != RunsRounding::SUBNORMALS || c.runs.shape != RunsPlan::ONE) return false;
            p->most[i] = c.runs.speculation.most;
            if (c.runs.speculation.steps < p->steps) p->steps = c.runs.speculation.steps;
        }
        return true;
    }

    void alone(Tile t, uint32_t set) {
        int i = 0;
        while (set >> (i + 1)) ++i;
        if (window) {
            window->reorder(members.orders[i]);
        } else if (members.orders[i].at()) {
            const T *a = (const T*)t.a, *b = (const T*)t.b;
            ordered.resize((size_t)(t.k * (MR + nr)));
            T *to_a = ordered.data(), *to_b = to_a + t.k * MR;
            for (int64_t k = 0; k < t.k; ++k) {
                const int64_t at = members.orders[i].position[(size_t)k];
                memcpy(to_a + at * MR, a + k * MR, sizeof(T) * MR);
                memcpy(to_b + at * nr, b + k * nr, sizeof(T) * (size_t)nr);
            }
            t.a = to_a;
            t.b = to_b;
        }
        runners[i].run(t, nullptr, nullptr, 0, TileScales(), nullptr, window);
        runners[i].add_to(report);
    }
};

}  // namespace gemmsim
