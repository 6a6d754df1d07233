// This file reuses the memory of earlier products for packed operands. Without that, memory freed at the end of the
// heap goes back to the system each time, and fresh pages cost a product of 512 a tenth of its time.
#pragma once
#include <new>
#include <stddef.h>
#include <stdlib.h>

namespace gemmsim {

// Memory that a thread retains for its next product.
struct CachedMemory {
    static constexpr size_t MOST = 16 << 20;  // in all
    static constexpr int PLACES = 4;
    struct Piece {
        char* p;
        size_t size;
    } pieces[PLACES] = {};
    size_t all = 0;

    CachedMemory() = default;
    CachedMemory(const CachedMemory&) = delete;
    CachedMemory& operator=(const CachedMemory&) = delete;
    ~CachedMemory() {
        for (const Piece& x : pieces) free(x.p);
    }
    // Returns the smallest piece of at least n bytes, or a new one.
    Piece take(size_t n) {
        Piece* best = nullptr;
        for (Piece& x : pieces)
            if (x.p && x.size >= n && (!best || x.size < best->size)) best = &x;
        if (!best) return Piece{(char*)aligned_alloc(64, n), n};
        const Piece taken = *best;
        all -= taken.size;
        *best = Piece{};
        return taken;
    }
    // Retains a piece. Where there are too many, it replaces smaller pieces.
    void give(Piece x) {
        while (x.size <= MOST) {
            Piece *empty = nullptr, *smallest = nullptr;
            for (Piece& y : pieces) {
                if (!y.p) empty = &y;
                else if (!smallest || y.size < smallest->size) smallest = &y;
            }
            if (empty && all + x.size <= MOST) {
                all += x.size;
                *empty = x;
                return;
            }
            if (!smallest || smallest->size >= x.size) break;
            all -= smallest->size;
            free(smallest->p);
            *smallest = Piece{};
        }
        free(x.p);
    }
    static CachedMemory& of_this_thread() {
        static thread_local CachedMemory kept;
        return kept;
    }
};

// 64-byte aligned, uninitialised memory. Small buffers are on the stack. The constructor may throw std::bad_alloc.
struct Buffer {
    alignas(64) char small[8192];
    char* p = small;
    CachedMemory::Piece piece = {};
    explicit Buffer(size_t n) {
        if (n <= sizeof small) return;
        piece = CachedMemory::of_this_thread().take((n + 127) / 64 * 64);
        if (!piece.p) throw std::bad_alloc();
        p = piece.p;
    }
    ~Buffer() {
        if (piece.p) CachedMemory::of_this_thread().give(piece);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
};

}  // namespace gemmsim
