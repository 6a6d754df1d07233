// How a long product ends early: its threads ask between parts of their work whether it is to, and the thread that called asks the
// interpreter, which may have a signal to handle.
#pragma once
#include <atomic>
#include <chrono>
#include <new>
#include <stdint.h>
#include <thread>

namespace gemmsim {

// Functions of CPython, which only the main thread calls; all null without one. `hold` and `release` are those of its lock, `check` runs
// the handlers of signals that have come and says whether one raised (-1), `take` has what it raised.
struct Interpreter {
    unsigned long (*thread)();
    int (*hold)();
    void (*release)(int);
    int (*check)();
    void (*take)(void**, void**, void**);
    unsigned long main;  // what `thread` says in the main thread
};

inline Interpreter& interpreter() {
    static Interpreter known = {};
    return known;
}

struct Interrupted {
    void* raised[3] = {};  // by a handler: type, value, traceback
};

// What the threads of one call know of each other.
class Call {
    typedef std::chrono::steady_clock Clock;
    enum End : int { GOES_ON, INTERRUPTED, NO_MEMORY };
    static constexpr std::chrono::milliseconds BETWEEN_QUESTIONS{50};
    std::atomic<int> end{GOES_ON};
    Clock::time_point next = {};  // when to ask; the calling thread's alone. Products that are soon through never look at the clock
    Interrupted interruption = {};

public:
    bool ended() const { return end.load(std::memory_order_relaxed) != GOES_ON; }

    // By the calling thread: whether a signal ends the call.
    void ask() {
        const Interpreter& python = interpreter();
        const Clock::time_point now = Clock::now();
        const bool first = next == Clock::time_point();
        if (!first && now < next) return;
        next = now + BETWEEN_QUESTIONS;
        if (first || !python.check || python.thread() != python.main) return;
        const int held = python.hold();
        if (python.check()) {
            void** const raised = interruption.raised;
            python.take(raised, raised + 1, raised + 2);
            end = INTERRUPTED;
        }
        python.release(held);
    }
    // A piece of work that may be left; no exception leaves a thread.
    template <class F> void attempt(const F& work) {
        if (ended()) return;
        try {
            work();
        } catch (const Interrupted&) {
        } catch (const std::bad_alloc&) { end = NO_MEMORY; }
    }
    // In the calling thread, when all threads are through.
    void finish() const {
        if (end == INTERRUPTED) throw interruption;
        if (end == NO_MEMORY) throw std::bad_alloc();
    }
    // Until other threads are through with what `done` counts; the calling thread, which would not ask while it waits at a barrier.
    void wait(const std::atomic<int64_t>& done, int64_t all) {
        constexpr std::chrono::microseconds SHORT{1000}, NAP{100};
        const Clock::time_point begin = Clock::now();
        while (done.load(std::memory_order_acquire) < all && !ended()) {
            if (Clock::now() - begin < SHORT) std::this_thread::yield();
            else std::this_thread::sleep_for(NAP);
            ask();
        }
    }
};

// One thread's part in a call: while this lives, look() is about that call.
class ThreadOfCall {
    static constexpr int64_t TERMS = 1 << 12;  // of a tile, between two looks
    struct State {
        Call* call = nullptr;
        bool calling = false;
        int64_t terms = 0;
    };
    static State& state() {
        static thread_local State of_this_thread;
        return of_this_thread;
    }
    const State before = state();

public:
    ThreadOfCall(Call* call, bool calling) { state() = State{call, calling, 0}; }
    ~ThreadOfCall() { state() = before; }
    ThreadOfCall(const ThreadOfCall&) = delete;
    ThreadOfCall& operator=(const ThreadOfCall&) = delete;

    // Before so many terms of a tile. Throws Interrupted where the call is to end.
    static void poll(int64_t terms) {
        State& s = state();
        s.terms += terms;
        if (s.terms < TERMS || !s.call) return;
        s.terms = 0;
        if (s.calling) s.call->ask();
        if (s.call->ended()) throw Interrupted();
    }
};

}  // namespace gemmsim
