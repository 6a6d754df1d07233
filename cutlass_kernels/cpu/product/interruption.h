// This file ends long products early. Threads check between parts of their work whether the call is to end. The calling
// thread asks the Python interpreter, which may have a signal to handle.
#pragma once
#include <atomic>
#include <chrono>
#include <new>
#include <stdint.h>
#include <thread>

namespace gemmsim {

// Functions of CPython, which only the main thread calls; all are null without an interpreter. `hold` and `release`
// take and release its lock. `check` runs the handlers of pending signals and returns -1 if one raised. `take` returns
// what it raised.
struct Interpreter {
    unsigned long (*thread)();
    int (*hold)();
    void (*release)(int);
    int (*check)();
    void (*take)(void**, void**, void**);
    unsigned long main;  // what `thread` returns in the main thread
};

inline Interpreter& interpreter() {
    static Interpreter known = {};
    return known;
}

struct Interrupted {
    void* raised[3] = {};  // what a handler raised: type, value, traceback
};

// State that the threads of one call share.
class Call {
    typedef std::chrono::steady_clock Clock;
    enum End : int { GOES_ON, INTERRUPTED, NO_MEMORY };
    static constexpr std::chrono::milliseconds BETWEEN_QUESTIONS{50};
    std::atomic<int> end{GOES_ON};
    // The time of the next question; only the calling thread uses it. Short products never read the clock.
    Clock::time_point next = {};
    Interrupted interruption = {};

public:
    bool ended() const { return end.load(std::memory_order_relaxed) != GOES_ON; }

    // Asks whether a signal ends the call. Only the calling thread calls this.
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
    // Runs a piece of work unless the call has ended. No exception leaves a thread.
    template <class F> void attempt(const F& work) {
        if (ended()) return;
        try {
            work();
        } catch (const Interrupted&) {
        } catch (const std::bad_alloc&) { end = NO_MEMORY; }
    }
    // Throws what ended the call. The calling thread calls this after all threads are done.
    void finish() const {
        if (end == INTERRUPTED) throw interruption;
        if (end == NO_MEMORY) throw std::bad_alloc();
    }
    // Waits until `done` counts all work of the other threads. The calling thread uses this instead of a barrier, at
    // which it could not ask.
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

// One thread's part in a call. While this object lives, poll() refers to that call.
class ThreadOfCall {
    static constexpr int64_t TERMS = 1 << 12;  // terms of a tile between two checks
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

    // Callers report here the terms of a tile that they are about to add. This throws Interrupted if the call is to
    // end.
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
