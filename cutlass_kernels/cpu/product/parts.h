// Computes a run of a tile's terms in parts of limited length. Between two parts a long product can be interrupted.
// If panels have only some of the terms (a window), the next terms are packed there.
#pragma once
#include "product/exponent_cache.h"
#include "product/interruption.h"
#include "isa_table.h"

namespace gemmsim {

#ifndef GEMMSIM_PART
#define GEMMSIM_PART (1 << 14)
#endif
#ifndef GEMMSIM_WINDOW
#define GEMMSIM_WINDOW (1 << 11)
#endif

// Panels of one tile that have only the terms of places [begin, end). They are packed when a kernel needs these terms.
template <class T> struct Window {
    const int64_t most;  // the most terms at a time
    T *panel_a = nullptr, *panel_b = nullptr;
    int64_t begin = 0, end = -1;

    // `together`: how many terms must be in the panels at once.
    explicit Window(int64_t k, int64_t together) : most(smaller(k, larger(GEMMSIM_WINDOW, together))) {}
    virtual ~Window() = default;
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    // Makes the panels have terms [from, to). Returns whether it packed other terms for that.
    bool move(int64_t from, int64_t to, int64_t k) {
        if (begin <= from && to <= end) return false;
        begin = from;
        end = smaller(k, from + most);
        pack(begin, end - begin);
        return true;
    }
    void forget() { end = -1; }

private:
    static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
    static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }
    virtual void pack(int64_t from, int64_t n) = 0;  // packs n terms into both panels
};

// What all parts of all runs of a tile share.
template <class T> struct Terms {
    const Tile& base;  // a and b point at k = 0; they have no meaning if there is a window
    int nr;
    const int64_t* kmap;  // interleaved sums: the k of each place; else null
    const HardwareModel& hardware;
    Window<T>* window = nullptr;

    // The most terms of a part: whole steps of a matrix instruction, so that no step is divided.
    int64_t most() const {
        const int64_t size = window ? window->most : GEMMSIM_PART, step = hardware.kind == HW_NONE ? 1 : hardware.k;
        return size < step ? step : size / step * step;
    }
    // Whether the panels can have these terms all at once.
    bool at_once(int64_t begin, int64_t end) const { return !window || end - begin <= window->most; }

    // The tile of terms [begin, end), with sums in `out`.
    Tile tile(int64_t begin, int64_t end, T* out) const {
        if (window) window->move(begin, end, base.k);
        const int64_t first = window ? window->begin : 0;
        Tile t = base;
        if (window || base.a) {  // codes of a table have no panels
            t.a = (window ? window->panel_a : (const T*)base.a) + (begin - first) * MR;
            t.b = (window ? window->panel_b : (const T*)base.b) + (begin - first) * nr;
        }
        t.c = out;
        t.k = end - begin;
        t.k0 = begin;
        t.kmap = kmap ? kmap + begin : nullptr;
        if (base.low_a) t.low_a = base.low_a + begin, t.low_b = base.low_b + begin;
        ExponentFields::begin_at(&t, hardware, begin, nr);
        return t;
    }
};

// Terms [begin, end) of a tile, which are added up in `out`.
template <class T> struct Parts {
    const Terms<T>& terms;
    const int64_t begin, end;
    T* const out;

    int64_t count() const { return end - begin; }
    const Tile& base() const { return terms.base; }

    // Whether the unchanged tile already has all these terms, as most do.
    bool is_base(int64_t size) const {
        const Tile& t = terms.base;
        return begin == 0 && end == t.k && end <= size && out == t.c && !terms.window && !terms.kmap;
    }
    // Calls part(tile) for each part in order until one returns false. Returns whether all returned true.
    template <class F> bool while_true(const F& part) const {
        const int64_t size = terms.most();
        if (is_base(size)) {
            ThreadOfCall::poll(end);
            return part(terms.base);
        }
        for (int64_t k = begin;; k += size) {
            const int64_t stop = end - k > size ? k + size : end;
            ThreadOfCall::poll(stop - k);
            Tile t = terms.tile(k, stop, out);
            t.begins = k == begin;
            t.ends = stop == end;
            if (!part(t)) return false;
            if (t.ends) return true;
        }
    }
    template <class F> void each(const F& part) const {
        while_true([&](const Tile& t) { return part(t), true; });
    }
    // Calls term(tile, k) for each term.
    template <class F> void each_term(const F& term) const {
        each([&](const Tile& t) {
            for (int64_t k = 0; k < t.k; ++k) term(t, k);
        });
    }
};

}  // namespace gemmsim
