// A run of terms of one tile, so many terms at a time: between two parts a long product may be interrupted, and where panels hold some of
// the terms only, they are made of the next ones.
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

// Panels of one tile that hold the terms of places [begin, end) alone, made when these are asked for.
template <class T> struct Window {
    const int64_t most;  // so many at a time
    T *panel_a = nullptr, *panel_b = nullptr;
    int64_t begin = 0, end = -1;

    // `together`: terms that must be there at once.
    explicit Window(int64_t k, int64_t together) : most(smaller(k, larger(GEMMSIM_WINDOW, together))) {}
    virtual ~Window() = default;
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    // Whether other terms came in the place of those that were there.
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
    virtual void pack(int64_t from, int64_t n) = 0;  // into both panels
};

// What all parts of all runs of a tile have in common.
template <class T> struct Terms {
    const Tile& base;  // a and b at k = 0, or anything where there is a window
    int nr;
    const int64_t* kmap;  // where lanes are interleaved, the k of each place; else null
    const HardwareModel& hardware;
    Window<T>* window = nullptr;

    // Terms of steps that belong together are in one part.
    int64_t most() const {
        const int64_t size = window ? window->most : GEMMSIM_PART, step = hardware.kind == HW_NONE ? 1 : hardware.k;
        return size < step ? step : size / step * step;
    }
    bool at_once(int64_t begin, int64_t end) const { return !window || end - begin <= window->most; }

    Tile tile(int64_t begin, int64_t end, T* out) const {
        if (window) window->move(begin, end, base.k);
        const int64_t first = window ? window->begin : 0;
        Tile t = base;
        if (window || base.a) {  // there are none of codes
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

// Terms [begin, end), to be summed up in `out`.
template <class T> struct Parts {
    const Terms<T>& terms;
    const int64_t begin, end;
    T* const out;

    int64_t count() const { return end - begin; }
    const Tile& base() const { return terms.base; }

    // Whether the tile as it is has all terms: most are.
    bool is_base(int64_t size) const {
        const Tile& t = terms.base;
        return begin == 0 && end == t.k && end <= size && out == t.c && !terms.window && !terms.kmap;
    }
    // part(tile) one after the other, until one is false; whether none was.
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
    // term(tile, k): each of them.
    template <class F> void each_term(const F& term) const {
        each([&](const Tile& t) {
            for (int64_t k = 0; k < t.k; ++k) term(t, k);
        });
    }
};

}  // namespace gemmsim
