// Barriers, TMA and warp groups' instructions on the host, in place of PTX and CuTe's, as the PTX manual describes them. TMA brings
// when somebody waits for it (GEMMSIM_HOST_EARLY: at once); an instruction ends when its thread waits for it, and until then its
// registers hold NaN and its operands must not change.
#pragma once
#include "../../instruction.h"
#include "gemm/tensor_cores/wgmma_config.h"

namespace host {

// A barrier's eight bytes of shared memory: arrivals a phase, those still missing, bytes that TMA has still to bring, parity.
struct Barrier {
    int16_t count, pending;
    int32_t missing_and_parity;
    int missing() const { return missing_and_parity >> 1; }
    unsigned parity() const { return missing_and_parity & 1; }
    void add(int arrivals, int bytes) {
        pending -= arrivals;
        if (pending < 0) abort();  // more arrivals than the phase has
        int now = missing() + bytes;
        unsigned phase = parity();
        if (pending == 0 && now == 0) {
            pending = count;
            phase ^= 1;
        }
        missing_and_parity = now * 2 + (int)phase;
    }
};
static_assert(sizeof(Barrier) == 8);

// What the test writes in place of a tensor map.
struct Map {
    uint64_t address, size[3], stride[2];
    uint32_t box[3];
};
struct Brought {
    Barrier* barrier;
    uint8_t* to;
    Map map;
    int at[3];
};
constexpr unsigned QUEUE = 1 << 12;
static Brought queue[QUEUE];
static unsigned queued;

inline void bring(const Brought& one) {
    for (unsigned line = 0; line < one.map.box[1]; ++line)
        for (unsigned i = 0; i < one.map.box[0]; ++i) {
            const uint64_t at = one.at[0] + i, from = one.at[1] + line;
            const bool there = at < one.map.size[0] && from < one.map.size[1] && (uint64_t)one.at[2] < one.map.size[2];
            const uint8_t* const source = (const uint8_t*)one.map.address + one.at[2] * one.map.stride[1] + from * one.map.stride[0] + at;
            one.to[swizzled(line, i)] = there ? *source : 0;
        }
    one.barrier->add(0, -(int)(one.map.box[0] * one.map.box[1]));
}
inline bool bring_first(const Barrier* barrier) {
    for (unsigned i = 0; i < queued; ++i)
        if (queue[i].barrier == barrier) {
            const Brought one = queue[i];
            memmove(queue + i, queue + i + 1, (--queued - i) * sizeof(Brought));
            bring(one);
            return true;
        }
    return false;
}

// Threads of a warp that wait for each other.
struct Warp {
    unsigned arrived, round;
    bool any, result;
};
static Warp warps[32];
inline bool warp_any(bool x) {
    Warp& own = warps[current / 32];
    own.any = own.any || x;
    if (++own.arrived == 32) {
        own.result = own.any;
        own.any = false;
        own.arrived = 0;
        ++own.round;
    } else
        for (const unsigned round = own.round; own.round == round;) gemmsim_host_sync();
    return own.result;
}

}  // namespace host

namespace gemmsim {

struct GroupOps {
    static host::Barrier& of(uint64_t* barrier) { return *(host::Barrier*)barrier; }
    static void make(uint64_t* barrier, int count) { of(barrier) = {(int16_t)count, (int16_t)count, 0}; }
    static void made() { host::queued = 0; }
    // Whoever waits for it goes on before who arrives.
    static void arrive(uint64_t* barrier) {
        of(barrier).add(1, 0);
        gemmsim_host_sync();
    }
    static void expect(uint64_t* barrier, int bytes) {
        of(barrier).add(0, bytes);
        of(barrier).add(1, 0);
    }
    static void wait(uint64_t* barrier, uint32_t parity) {
        for (int turns = 0; of(barrier).parity() == parity; ++turns) {
            if (turns == 1 << 14) abort();  // it will never be
            if (!host::bring_first(&of(barrier))) gemmsim_host_sync();
        }
    }
    static void bring(uint8_t* to, const uint8_t* map, int byte, int line, int batch, uint64_t* barrier) {
        const host::Brought one = {&of(barrier), to, *(const host::Map*)map, {byte, line, batch}};
        if (host::early) return host::bring(one);
        if (host::queued == host::QUEUE) abort();
        host::queue[host::queued++] = one;
    }
    template <int COUNT> static void fewer_registers() {}
    template <int COUNT> static void more_registers() {}
    static void warp_sync() { host::warp_any(false); }
    static bool any(bool x) { return host::warp_any(x); }
};

template <GroupConfig K> struct GroupMma {
    static constexpr int SIZE = 64, KEPT_MOST = 16;
    struct Sums {
        float v[SIZE];
        float operator()(int i) const { return v[i]; }
    };
    // Operands as they were when it was issued, and what it makes of them.
    struct Instruction {
        Sums* sums;
        const uint8_t *a, *b;
        int k;
        unsigned batch;
        host::Operand<K.a> left[2];
        host::Operand<K.b> right[SIZE / 2];
        float result[SIZE];
    };
    struct Thread {
        Instruction of[KEPT_MOST];
        int count;
        unsigned batches;
    };
    static inline Thread threads[INSTRUCTION_THREADS];
    static Thread& own() { return threads[host::current - (blockDim.x - INSTRUCTION_THREADS)]; }

    static void clear(Sums& sums) { for (float& x : sums.v) x = 0; }
    static void begin(Sums&) {}

    static void issue(const uint8_t* a, const uint8_t* b, int tid, int k, bool fresh, Sums& sums) {
        Thread& mine = own();
        if (mine.count == KEPT_MOST) abort();
        const float* before = sums.v;
        for (int i = 0; i < mine.count; ++i)
            if (mine.of[i].sums == &sums) before = mine.of[i].result;
        Instruction& one = mine.of[mine.count++];
        one.sums = &sums;
        one.a = a, one.b = b, one.k = k, one.batch = mine.batches;
        for (int h = 0; h < 2; ++h) one.left[h].read(a, group_row(tid, 2 * h), k);
        for (int j = 0; j < SIZE / 2; ++j) one.right[j].read(b, group_column(tid, j / 2 * 4 + j % 2), k);
        for (int i = 0; i < SIZE; ++i)
            one.result[i] = host::instruction(one.left[i / 2 % 2], one.right[i / 4 * 2 + i % 2], fresh ? 0.0f : before[i]);
        for (float& x : sums.v) x = NAN;
    }
    static void commit() { ++own().batches; }
    template <int KEPT> static void settle(Sums&) {
        Thread& mine = own();
        const int tid = (int)host::current - (int)(blockDim.x - INSTRUCTION_THREADS);
        for (int i = 0; i < tid % 5; ++i) gemmsim_host_sync();  // some threads are ahead of others of their warp
        int done = 0;
        for (; done < mine.count && mine.of[done].batch + KEPT < mine.batches; ++done) {
            const Instruction& one = mine.of[done];
            bool same = true;
            for (int h = 0; h < 2; ++h) same = same && one.left[h].is_still(one.a, group_row(tid, 2 * h), one.k);
            for (int j = 0; j < SIZE / 2; ++j) same = same && one.right[j].is_still(one.b, group_column(tid, j / 2 * 4 + j % 2), one.k);
            bool last = true;
            for (int i = done + 1; i < mine.count; ++i) last = last && mine.of[i].sums != one.sums;
            fault = fault || !same;
            for (int i = 0; i < SIZE && last; ++i) one.sums->v[i] = fault ? NAN : one.result[i];
        }
        memmove(mine.of, mine.of + done, (mine.count - done) * sizeof(Instruction));
        mine.count -= done;
    }
    static inline bool fault;  // operands changed under an instruction
};

}  // namespace gemmsim
